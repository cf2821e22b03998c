#include "hlo/type.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace tpupilot::hlo {
namespace {

struct Facts {
  std::string_view name;
  size_t bytes;
};
constexpr std::array<Facts, 16> kFacts = {{{"invalid", 0},
                                           {"i1", 1},
                                           {"i8", 1},
                                           {"i16", 2},
                                           {"i32", 4},
                                           {"i64", 8},
                                           {"ui8", 1},
                                           {"ui16", 2},
                                           {"ui32", 4},
                                           {"ui64", 8},
                                           {"f16", 2},
                                           {"bf16", 2},
                                           {"f32", 4},
                                           {"f64", 8},
                                           {"complex<f32>", 8},
                                           {"complex<f64>", 16}}};
const Facts& facts(Elem e) { return kFacts.at(static_cast<size_t>(e)); }

}  // namespace

std::string_view name(Elem e) { return facts(e).name; }
size_t byte_size(Elem e) { return facts(e).bytes; }
bool is_float(Elem e) { return e >= Elem::F16 && e <= Elem::F64; }
bool is_complex(Elem e) { return e == Elem::C64 || e == Elem::C128; }
bool is_signed_integer(Elem e) { return e >= Elem::S8 && e <= Elem::S64; }
bool is_unsigned(Elem e) { return e >= Elem::U8 && e <= Elem::U64; }
bool is_integer(Elem e) { return is_signed_integer(e) || is_unsigned(e); }
Elem real_of(Elem e) { return e == Elem::C64 ? Elem::F32 : e == Elem::C128 ? Elem::F64 : e; }
Elem complex_of(Elem e) { return e == Elem::F32 ? Elem::C64 : e == Elem::F64 ? Elem::C128 : e; }
Elem compute_elem(Elem e) { return e == Elem::F16 || e == Elem::BF16 ? Elem::F32 : e; }

int64_t Type::numel() const { return product(dims); }

std::string Type::str() const {
  std::string text = "tensor<";
  for (int64_t d : dims) text += std::to_string(d) + "x";
  return text + std::string(hlo::name(elem)) + ">";
}

int64_t product(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

int64_t wrap_dim(int64_t dim, int64_t rank) {
  const int64_t span = std::max<int64_t>(rank, 1);
  if (dim < -span || dim >= span) {
    throw std::out_of_range("[wrap_dim] dimension " + std::to_string(dim) + " is out of range for rank " +
                            std::to_string(rank));
  }
  return dim < 0 ? dim + span : dim;
}

}  // namespace tpupilot::hlo
