// Writes one StableHLO module as text: generic form, 1.13 vocabulary (what every supported plugin parses).
// A Builder is used by one thread. Shapes are checked here, so that a wrong emitter fails with the op's name
// and the numbers, not in the plugin's parser. Errors: hlo::Error.
#pragma once

#include <complex>
#include <functional>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hlo/target.h"
#include "hlo/type.h"

namespace tpupilot::hlo {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Direction { EQ, NE, GE, GT, LE, LT };

struct Convolution {  // attributes of stablehlo.convolution; spatial vectors have one entry a spatial dimension
  Dims window_strides;
  std::vector<std::pair<int64_t, int64_t>> padding;  // may be negative
  Dims lhs_dilation, rhs_dilation;
  std::string dimension_numbers;  // e.g. "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
  int64_t feature_group_count = 1, batch_group_count = 1;
};

struct Gather {
  Dims offset_dims = {};
  Dims collapsed_slice_dims = {};
  Dims operand_batching_dims = {};
  Dims start_indices_batching_dims = {};
  Dims start_index_map = {};
  int64_t index_vector_dim = 0;
  Dims slice_sizes = {};
};

struct Scatter {
  Dims update_window_dims = {};
  Dims inserted_window_dims = {};
  Dims input_batching_dims = {};
  Dims scatter_indices_batching_dims = {};
  Dims scatter_dims_to_operand_dims = {};
  int64_t index_vector_dim = 0;
};

class Builder {
 public:
  explicit Builder(Target target = {}) : target_(target) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  const Target& target() const { return target_; }
  int64_t op_count() const { return op_count_; }
  // Every op computes element by element or only moves elements, and all together make kSmall elements at most. XLA:CPU
  // runs what has less than 1,000 floating-point operations in the calling thread; an op may become several.
  bool small_elementwise() const { return elements_ <= kSmall; }
  static constexpr int64_t kSmall = 128;
  // Its contractions were made as target().passes says: another setting would give another program.
  bool contracts() const { return contracts_; }
  void set_passes(Passes passes) { target_.passes = passes; }  // of what is emitted from here on

  Value parameter(Type type);
  // The whole module, with `results` as @main's results. May be called once.
  std::string module(const Values& results) const;
  // Each of `results` as it was before a reshape to one dimension gave it. XLA:CPU fuses that reshape with what
  // computes the value, and then finds each element's indices by division.
  Values before_flattening(Values results) const;
  const Values& parameters() const { return parameters_; }

  // ---- any op, checked by the caller ----
  Value op(std::string_view name, const Values& in, Type out, std::string_view properties = {},
           std::string_view regions = {}, std::string_view attributes = {});
  Values ops(std::string_view name, const Values& in, const std::vector<Type>& out, std::string_view properties = {},
             std::string_view regions = {}, std::string_view attributes = {});
  // A region body: called with its block arguments, returns what it yields. The text, braces included, goes into
  // `regions` above; several regions are joined by ", ". A region without arguments (if, case) may use values from
  // outside; one with arguments may not (reduce, scatter, sort, ...), except where `may_capture` says so (while).
  std::string region(const std::vector<Type>& arguments, const std::function<Values(const Values&)>& body,
                     bool may_capture = false);
  // `body` as a function that is not inlined: what it gives is computed once, however many ops use it. Costs a call at
  // run time and some compile time.
  Values apart(const Values& in, const std::function<Values(const Values&)>& body);
  // The compiler may not move or fuse work across it (xla-cpu-pjrt drops it before it fuses).
  Value barrier(const Value& x) { return op("stablehlo.optimization_barrier", {x}, x.type); }

  // ---- constants ----
  Value constant(double v, Type type);  // splat; converted to the element type; NaN and infinities allowed in floats
  Value constant_int(int64_t v, Type type);
  Value constant_complex(std::complex<double> v, Type type);
  Value zeros(Type type) { return constant(0, std::move(type)); }
  Value constant_ints(const std::vector<int64_t>& values, Elem elem);  // 1-d
  Value lowest(Type type);   // -inf, the smallest integer, false: the identity of maximum
  Value highest(Type type);  // +inf, the largest integer, true: the identity of minimum
  Value iota(Type type, int64_t dim);

  // ---- element-wise; operands of one type ----
  Value unary(std::string_view name, const Value& x);                   // "stablehlo.tanh", "chlo.erf"
  Value binary(std::string_view name, const Value& a, const Value& b);  // "stablehlo.add"
  Value add(const Value& a, const Value& b) { return binary("stablehlo.add", a, b); }
  Value sub(const Value& a, const Value& b) { return binary("stablehlo.subtract", a, b); }
  Value mul(const Value& a, const Value& b) { return binary("stablehlo.multiply", a, b); }
  Value div(const Value& a, const Value& b) { return binary("stablehlo.divide", a, b); }
  Value max(const Value& a, const Value& b) { return binary("stablehlo.maximum", a, b); }
  Value min(const Value& a, const Value& b) { return binary("stablehlo.minimum", a, b); }
  Value logical_and(const Value& a, const Value& b) { return binary("stablehlo.and", a, b); }
  Value logical_or(const Value& a, const Value& b) { return binary("stablehlo.or", a, b); }
  Value logical_not(const Value& a) { return unary("stablehlo.not", a); }
  Value neg(const Value& x) { return unary("stablehlo.negate", x); }
  Value compare(Direction d, const Value& a, const Value& b, bool total_order = false);  // Pred of the operands' shape
  Value select(const Value& pred, const Value& on_true, const Value& on_false);  // pred of the same shape, or 0-d
  Value convert(const Value& x, Elem elem);  // StableHLO's convert; no-op for the same type
  Value bitcast(const Value& x, Type type);
  Value is_nan(const Value& x);  // Pred; false for integers

  // ---- shape ----
  Value reshape(const Value& x, const Dims& dims);
  Value broadcast(const Value& x, const Dims& dims);                          // torch's rule: aligned at the last dim
  Value broadcast_in_dim(const Value& x, const Dims& out, const Dims& dims);  // x's dim i becomes out's dim dims[i]
  Value transpose(const Value& x, const Dims& permutation);
  Value slice(const Value& x, const Dims& start, const Dims& limit, const Dims& stride);
  Value slice_dim(const Value& x, int64_t dim, int64_t start, int64_t limit, int64_t stride = 1);
  Value dynamic_slice(const Value& x, const Values& starts, const Dims& sizes);  // starts: 0-d integers; they clamp
  Value dynamic_update_slice(const Value& x, const Value& update, const Values& starts);
  Value pad(const Value& x, const Value& fill, const Dims& low, const Dims& high, const Dims& interior);
  Value concatenate(const Values& parts, int64_t dim);
  Value reverse(const Value& x, const Dims& dims);
  Value squeeze(const Value& x, int64_t dim);
  Value unsqueeze(const Value& x, int64_t dim);

  // ---- reductions: the reduced dims disappear ----
  Value reduce(std::string_view combiner, const Value& x, const Value& init,
               const Dims& dims);  // plain stablehlo.reduce
  // Sum and extrema in the form that is fast and exact on the target; f16/bf16 are widened to f32 inside
  // and the result has x's element type. `sum` of Pred is undefined: convert first.
  Value sum(const Value& x, const Dims& dims);
  Value amax(const Value& x, const Dims& dims);  // NaN wins
  Value amin(const Value& x, const Dims& dims);
  Value any(const Value& x, const Dims& dims);  // Pred
  Value all(const Value& x, const Dims& dims);  // Pred
  Value keep_dims(const Value& reduced, const Dims& original,
                  const Dims& dims);  // puts the reduced dims back with size 1
  // Broadcasts a value reduced over `dims` back to `original`.
  Value unreduce(const Value& reduced, const Dims& original, const Dims& dims);

  // ---- contractions, windows, indexing ----
  // Products of f32 (and of complex64, part by part) are made in target().passes; those of other types are what they
  // are.
  Value dot_general(const Value& a, const Value& b, const Dims& lhs_batch, const Dims& rhs_batch,
                    const Dims& lhs_contract, const Dims& rhs_contract, std::optional<Elem> result = {});
  // The same whatever target().passes: for what is no product to the user, such as a sum written as one.
  Value exact_dot_general(const Value& a, const Value& b, const Dims& lhs_batch, const Dims& rhs_batch,
                          const Dims& lhs_contract, const Dims& rhs_contract, std::optional<Elem> result = {});
  // Any product of two values that is linear in each, in target().passes: `product` is asked for the parts of a and b.
  // A TPU splits its operands itself, so there and for Passes::Exact it is product(a, b).
  Value by_passes(const Value& a, const Value& b, const std::function<Value(const Value&, const Value&)>& product);
  Value convolution(const Value& input, const Value& kernel, const Convolution& attributes, const Dims& out_dims);
  Value gather(const Value& x, const Value& indices, const Gather& g, const Dims& out_dims);
  // Calls a function that is registered with the plugin (FFI, api_version 4), on dense row-major arrays. `integers`
  // reach it by name. Without side effects: a call whose results nobody reads may be dropped.
  Values custom_call(std::string_view target, const Values& in, const std::vector<Type>& out,
                     const std::vector<std::pair<std::string_view, int64_t>>& integers = {});
  // combiner: region over (old, new) scalars; empty = the update replaces the element.
  Value scatter(const Value& x, const Value& indices, const Value& updates, const Scatter& s,
                std::string_view combiner = {}, bool unique = false);
  // Sorts all operands by the comparator over interleaved scalars (lhs0, rhs0, lhs1, rhs1, ...).
  Values sort(const Values& operands, int64_t dim, const std::function<Value(const Values&)>& less);
  Values while_loop(const Values& init, const std::function<Value(const Values&)>& condition,
                    const std::function<Values(const Values&)>& body);
  // Philox4x32-10: state U64[2] = {seed, offset in blocks of 128 bits}. Bits of `type` (U32 or U64), taken from the
  // blocks in their order; on a TPU or GPU XLA's rng_bit_generator gives other words.
  Value random_bits(const Value& state, Type type);

 private:
  std::string nested(bool isolated, const std::function<void()>& body);  // the text of what `body` adds
  Values fresh_arguments(const std::vector<Type>& types);
  void weigh(std::string_view name, const Type& out);
  std::string fresh() { return "%v" + std::to_string(next_++); }
  void append(std::string_view name, std::string_view results, const Values& in, const std::string& out_types,
              std::string_view properties = {}, std::string_view regions = {}, std::string_view attributes = {});
  struct DotDims {
    const Dims &lhs_batch, &rhs_batch, &lhs_contract, &rhs_contract;
  };
  Value dot(const Value& a, const Value& b, const DotDims& dims, std::optional<Elem> result);
  Value many_random_bits(const Value& state, const Type& type);
  Value sum_rows(const Value& x);    // [a, n] -> [a]
  Value sum_middle(const Value& x);  // [a, n, b] -> [a, 1, b]
  // Halves dim 1 by adding its halves until its length is `until` or less; and what to add at the end, if anything.
  std::pair<Value, Value> halve_sum(Value x, int64_t until);
  // The same for combiners where f(x, x) = x.
  Value halve_idempotent(std::string_view combiner, Value x, int64_t until);
  Value idempotent_rows(std::string_view combiner, const Value& x, const Value& init);  // [a, n] -> [a]
  Value reduce_in_parts(const Value& x, int64_t parts, const std::function<Value(const Value&)>& rows);
  Value reduce_idempotent(std::string_view combiner, const Value& x, const Value& init, const Dims& dims);
  Value reduce_in_stages(const Value& x, const Dims& dims, const std::function<Value(const Value&)>& rows,
                         const std::function<Value(const Value&)>& middle);
  Value keep_identity(const Value& identity, const Type& x, const Dims& dims);
  Dims normalized(std::string_view op, const Dims& dims, const Type& x) const;
  Value splat(const std::string& literal, Type type);
  void check_operands(std::string_view op, const Values& in) const;
  [[noreturn]] void fail(std::string_view op, const std::string& why) const;

  Target target_;
  std::ostringstream body_;
  std::string functions_;                             // beside @main
  std::unordered_map<std::string, Value> flattened_;  // what reshapes to one dimension were given, by the result's name
  Values parameters_;
  int next_ = 0;
  int depth_ = 0;   // of nested regions
  int floor_ = -1;  // inside a region that may not capture: the number of its first value; else -1
  int64_t op_count_ = 0;
  int64_t elements_ = 0;  // made by all ops; beyond kSmall once an op is not element-wise
  bool contracts_ = false;
};

std::string array_attribute(const Dims& dims);  // "array<i64: 1, 2>", "array<i64>" when empty
std::string literal(double v, Elem elem);       // what stands inside dense<...>; floats as bit patterns
std::string_view spelled(Direction d);

}  // namespace tpupilot::hlo
