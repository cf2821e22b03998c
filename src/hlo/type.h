// Element types, shapes and values of a StableHLO program. Plain data: copyable, no global state, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tpupilot::hlo {

using Dims = std::vector<int64_t>;

// Names are XLA's. The order is by kind and width, not that of PJRT_Buffer_Type.
enum class Elem : uint8_t { Invalid, Pred, S8, S16, S32, S64, U8, U16, U32, U64, F16, BF16, F32, F64, C64, C128 };

std::string_view name(Elem e);  // as StableHLO text spells it: "f32", "i64", "ui8", "i1", "complex<f32>"
size_t byte_size(Elem e);       // bytes of one element in a host buffer
bool is_float(Elem e);          // f16, bf16, f32, f64
bool is_complex(Elem e);
bool is_integer(Elem e);  // signed or unsigned, not Pred
bool is_signed_integer(Elem e);
bool is_unsigned(Elem e);   // u8 .. u64
Elem real_of(Elem e);       // C64 -> F32, C128 -> F64, others unchanged
Elem complex_of(Elem e);    // F32 -> C64, F64 -> C128
Elem compute_elem(Elem e);  // ATen's opmath type: f16 and bf16 -> f32, others unchanged

struct Type {
  Elem elem = Elem::Invalid;
  Dims dims;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t numel() const;
  std::string str() const;  // "tensor<2x3xf32>"
  Type with(Elem e) const { return {e, dims}; }
  Type with(Dims d) const { return {elem, std::move(d)}; }
  bool operator==(const Type&) const = default;
};

// One SSA value of the program that a Builder writes. Belongs to that Builder; default-constructed = no value.
struct Value {
  std::string name;
  Type type;

  explicit operator bool() const { return !name.empty(); }
  Elem elem() const { return type.elem; }
  const Dims& dims() const { return type.dims; }
  int64_t rank() const { return type.rank(); }
};
using Values = std::vector<Value>;

int64_t product(const Dims& dims);
Dims contiguous_strides(const Dims& sizes);   // in elements, row-major; a zero-sized dim counts as 1, as ATen's do
int64_t wrap_dim(int64_t dim, int64_t rank);  // -1 -> rank-1; a 0-d value accepts 0 and -1

}  // namespace tpupilot::hlo
