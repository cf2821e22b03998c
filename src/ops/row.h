// The op table. A row = the ATen overloads it serves + the emitter that writes their program (+ a shape function and
// flags where needed). Rows know neither torch nor PJRT: they see typed values, and attributes by argument name.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hlo/builder.h"
#include "ops/requirement.h"

namespace tpupilot::ops {

using hlo::Builder;
using hlo::Dims;
using hlo::Elem;
using hlo::Type;
using hlo::Value;
using hlo::Values;

enum class ScalarKind { Bool, Int, Float, Complex };  // the kind of a Python scalar; its value is a program input

// What an emitter sees of one call. Arguments are asked for by their schema name ("self", "dim"); asking for a name
// that the overload lacks is an Error that says so. Tensor arguments come as values of their logical shape: views are
// already folded in. A 0-d CPU tensor argument is a value like any other.
class Context {
 public:
  Context(Builder& builder, std::string_view overload) : b(builder), overload_(overload) {}
  virtual ~Context() = default;

  Builder& b;
  std::string_view overload() const { return overload_; }  // "add.out"

  virtual bool has_argument(std::string_view name) const = 0;  // the schema has it
  virtual bool given(std::string_view name) const = 0;         // and it is neither None nor an undefined tensor

  // ---- tensors ----
  virtual Value tensor(std::string_view name) = 0;
  virtual std::vector<std::optional<Value>> tensors(std::string_view name) = 0;  // Tensor[] and Tensor?[]
  virtual bool is_wrapped_number(std::string_view name) const = 0;               // a Python scalar that became a tensor
  // Its strides are the row-major ones. For ops whose results depend on it in ATen.
  virtual bool is_contiguous(std::string_view) const { return true; }

  virtual Elem default_elem() const = 0;  // torch.get_default_dtype(): what a Python float is when it decides alone

  // ---- scalars that are program inputs: schema types Scalar and float ----
  virtual bool is_scalar(std::string_view name) const = 0;
  virtual Value scalar(std::string_view name, Elem elem) = 0;  // 0-d, converted
  virtual Values integer_inputs(std::string_view name) = 0;    // of a list under Row::inputs: 0-d S64 each
  virtual ScalarKind scalar_kind(std::string_view name) const = 0;
  // True only when the row lists `name` under Row::identities and the value is that identity.
  virtual bool is_identity(std::string_view name) const = 0;

  // A scalar that the row lists under Row::constants: its value, for programs whose form depends on it.
  virtual double constant(std::string_view name) const = 0;

  // ---- attributes: part of the key ----
  virtual int64_t integer(std::string_view name) const = 0;
  virtual bool boolean(std::string_view name) const = 0;
  virtual Dims integers(std::string_view name) const = 0;  // int[], SymInt[]; int[2] given as one number is expanded
  virtual std::string string(std::string_view name) const = 0;
  virtual std::vector<bool> booleans(std::string_view name) const = 0;
  virtual std::vector<double> floats(std::string_view name) const = 0;

  // ---- results, as the shape function or the Meta kernel decided them ----
  virtual size_t result_count() const = 0;
  virtual const Type& result(size_t i = 0) const = 0;

  // ---- random numbers (rows with Row::random only) ----
  virtual Value random_state() = 0;  // U64[2]: seed, offset; both program inputs

  // ---- checks ----
  // What ATen raises if `ok` (Pred) is not true everywhere. A device program cannot raise: it finishes, and the host
  // raises when it next waits for the device. "{}" in the text becomes `offender` (an integer of ok's shape; may be
  // empty) where `ok` first is false.
  void require(Value ok, Value offender, Refusal refusal) {
    refusal.text += " [" + std::string(overload_) + "]";
    requirements_.push_back({std::move(ok), std::move(offender), std::move(refusal)});
  }
  const std::vector<Requirement>& requirements() const { return requirements_; }

  // ---- conveniences over the above ----
  // `name` converted to `elem` and broadcast to `dims`.
  Value tensor_as(std::string_view name, Elem elem, const Dims& dims) {
    return b.broadcast(b.convert(tensor(name), elem), dims);
  }
  Value scalar_as(std::string_view name, const Type& type) { return b.broadcast(scalar(name, type.elem), type.dims); }
  // The argument's dims wrapped to 0..rank-1; all dims when it is empty or None.
  Dims dims_or_all(std::string_view name, int64_t rank) const;

 private:
  std::string_view overload_;
  std::vector<Requirement> requirements_;
};

// Writes the program of one call; returns one value for each result. An empty Value is an undefined tensor (a gradient
// that output_mask does not ask for). The boxed kernel converts a result to result(i).elem and broadcasts it to
// result(i).dims if they differ.
using Emitter = std::function<Values(Context&)>;

// For overloads whose Meta kernel is missing or wrong. Types of tensor arguments are asked through
// ctx.tensor(name).type. A result whose type is left Type{} is as the Meta kernel says, strides included.
using ShapeFunction = std::function<std::vector<Type>(Context&)>;

struct Row {
  std::vector<std::string_view> overloads = {};  // without the "aten::": "add.out", "relu", "relu_"
  Emitter emit;
  ShapeFunction shape = nullptr;

  // Scalar arguments whose identity value (an int or float equal to it) gets a program of its own without the input:
  // {{"alpha", 1}}. Any other value is one program more, whatever it is.
  struct Identity {
    std::string_view name;
    double value;
  };
  std::vector<Identity> identities = {};

  // Scalar arguments that decide the form of the program (the order of a norm): part of the key, not an input.
  std::vector<std::string_view> constants = {};

  // Integer arguments (int, int[]) that are program inputs like Scalars: a roll's amounts.
  std::vector<std::string_view> inputs = {};

  // Random rows: how many 128-bit Philox blocks one call draws at most, from the result types; the generator's offset
  // moves on by it.
  std::function<uint64_t(const std::vector<Type>&)> random = nullptr;
  // Tensor arguments that the op changes although the schema does not say so (batch norm's running statistics). The
  // emitter returns one value for each that is given, after the schema's results.
  std::vector<std::string_view> mutates = {};
  // For overloads with an argument check_errors: the name under which a nonzero last result (LAPACK's info) is reported
  // when it is true.
  std::string_view checks_errors_as = {};
  // With a shape function: the results whose matrices lie column by column, as ATen leaves what LAPACK wrote.
  std::vector<size_t> column_major = {};
  // Results whose value is left undefined by the call (uninitialised), or other remarks for the support matrix.
  std::string_view remark = {};
};

// An op of our own, in the library "tpupilot": a program that no ATen overload is by itself, called by kernels that
// cannot be rows. Its name is that of the schema; the row names no overloads and has a shape function.
struct InternalOp {
  std::string_view schema;
  Row row;
};
const std::vector<InternalOp>& internal_ops();
std::vector<InternalOp> counted_ops();
std::vector<InternalOp> histogram_ops();
std::vector<InternalOp> random_ops();

// All rows, in the order of the families. Built once, thread-safe, never freed.
const std::vector<Row>& rows();

// One function a family, each in its own file (unary.cpp, reduction.cpp, ...); rows() concatenates them.
std::vector<Row> unary_rows();
std::vector<Row> binary_rows();
std::vector<Row> modified_bessel_rows();
std::vector<Row> bessel_rows();
std::vector<Row> normal_rows();
std::vector<Row> polynomial_rows();
std::vector<Row> gamma_rows();
std::vector<Row> compare_rows();
std::vector<Row> fill_rows();
std::vector<Row> reduction_rows();
std::vector<Row> shape_rows();
std::vector<Row> index_rows();
std::vector<Row> matmul_rows();
std::vector<Row> convolution_rows();
std::vector<Row> pooling_rows();
std::vector<Row> normalization_rows();
std::vector<Row> activation_rows();
std::vector<Row> softmax_rows();
std::vector<Row> loss_rows();
std::vector<Row> random_rows();
std::vector<Row> optimizer_rows();
std::vector<Row> recurrent_rows();
std::vector<Row> sort_rows();
std::vector<Row> linalg_rows();
std::vector<Row> cholesky_rows();
std::vector<Row> lu_rows();
std::vector<Row> fft_rows();
std::vector<Row> decomposition_rows();
std::vector<Row> padding_rows();
std::vector<Row> unfold_window_rows();
std::vector<Row> distance_rows();
std::vector<Row> grid_sample_rows();
std::vector<Row> margin_loss_rows();
std::vector<Row> embedding_bag_rows();
std::vector<Row> ctc_rows();
std::vector<Row> segment_rows();
std::vector<Row> fractional_pool_rows();
std::vector<Row> counted_rows();
std::vector<Row> histogram_rows();

}  // namespace tpupilot::ops
