// Random numbers: Philox words from a seed and an offset that are program inputs, so another draw is never another
// compile. The distributions follow ATen's; the streams do not (ATen's CPU generator is a Mersenne twister).
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/expr.h"
#include "ops/scan.h"
#include "ops/sorting.h"

namespace tpupilot::ops {
namespace {

// Mantissa bits of a type: a uniform number has as many.
int digits(Elem elem) {
  switch (elem) {
    case Elem::F16:
      return 11;
    case Elem::BF16:
      return 8;
    case Elem::F64:
      return 53;
    default:
      return 24;
  }
}

Elem real_opmath(const Type& type) {
  return hlo::is_float(type.elem) || hlo::is_complex(type.elem) ? hlo::compute_elem(hlo::real_of(type.elem))
                                                                : Elem::F32;
}

// Every random row draws at most one word an element, 64 bits wide for f64 and integers, two for complex: 128 bits
// cover all.
uint64_t blocks(const std::vector<Type>& results) {
  return static_cast<uint64_t>(std::max<int64_t>(results[0].numel(), 1));
}

// Integers in [0, 2^bits), exact in `elem`.
Expr drawn(Context& c, Elem elem, const Dims& dims, int bits) {
  Builder& b = c.b;
  const bool wide = elem == Elem::F64;
  const Type type{wide ? Elem::U64 : Elem::U32, dims};
  const Value words = b.random_bits(c.random_state(), type);
  const Value numbers = b.binary("stablehlo.shift_right_logical", words, b.constant_int((wide ? 64 : 32) - bits, type));
  // Through a signed type: the CPU plugins convert those in one instruction.
  return expr(c, b.convert(b.convert(numbers, wide ? Elem::S64 : Elem::S32), elem));
}

// In [0, 1), multiples of 2^-bits.
Expr uniform_number(Context& c, Elem elem, const Dims& dims, int bits) {
  return drawn(c, elem, dims, bits) * std::ldexp(1, -bits);
}
Expr uniform_number(Context& c, Elem elem, const Dims& dims) { return uniform_number(c, elem, dims, digits(elem)); }

// In (0, 1), both ends excluded: the middles of 2^(digits - 1) equal parts.
Expr open_uniform(Context& c, Elem elem, const Dims& dims) {
  const int bits = digits(elem) - 1;
  return (drawn(c, elem, dims, bits) + 0.5) * std::ldexp(1, -bits);
}

// Standard normal numbers by the inverse of their distribution: the CPU plugins have it as a polynomial, but call libm
// for the sines of Box and Muller. 23 bits reach to 5.4 standard deviations, 52 bits to 8.2.
Expr standard_normal(Context& c, Elem elem, const Dims& dims) {
  return std::numbers::sqrt2 * apply("chlo.erf_inv", open_uniform(c, elem, dims) * 2 - 1);
}

Values uniform(Context& c) {
  const Type& type = c.result();
  const Elem elem = real_opmath(type);
  const Expr from = expr(c, c.scalar("from", elem)), to = expr(c, c.scalar("to", elem));
  return {uniform_number(c, elem, type.dims, digits(type.elem)) * (to - from) + from};
}

// mean and std are tensors or numbers.
Expr parameter(Context& c, std::string_view name, Elem elem, const Dims& dims) {
  if (c.is_scalar(name)) return expr(c, c.scalar(name, elem));
  return expr(c, c.tensor_as(name, elem, dims));
}

Values normal(Context& c) {
  const Type& type = c.result();
  const Elem elem = real_opmath(type);
  const Expr mean = parameter(c, "mean", elem, type.dims), std = parameter(c, "std", elem, type.dims);
  if (!c.is_scalar("std")) {  // a number is looked at before the call
    c.require(std >= 0, {}, {Refusal::Kind::Runtime, "normal expects all elements of std >= 0.0"});
  }
  if (!hlo::is_complex(type.elem)) return {standard_normal(c, elem, type.dims) * std + mean};
  Dims both = type.dims;
  both.insert(both.begin(), 2);
  const Expr z = standard_normal(c, elem, both);
  const auto part = [&](int64_t i) { return reshape(expr(c, c.b.slice_dim(z, 0, i, i + 1)), type.dims); };
  const Expr half = std * std::sqrt(0.5);  // the variance is shared by the two parts
  return {apply("stablehlo.complex", part(0) * half + mean, part(1) * half)};
}

Values log_normal(Context& c) { return {exp(expr(c, normal(c)[0]))}; }

Values bernoulli_number(Context& c) {
  const Expr p = expr(c, c.scalar("p", Elem::F32));
  return {uniform_number(c, Elem::F32, c.result().dims) < p};
}
Values bernoulli_tensor(Context& c) {
  const std::string_view name = c.has_argument("p") ? "p" : "self";
  const Elem given = c.tensor(name).elem(), elem = hlo::is_float(given) ? hlo::compute_elem(given) : Elem::F32;
  const Expr p = expr(c, c.tensor_as(name, elem, c.result().dims));
  c.require((p >= 0) & (p <= 1), {}, {Refusal::Kind::Runtime, "Expected p_in >= 0 && p_in <= 1 to be true"});
  return {uniform_number(c, elem, c.result().dims) < p};
}

Values exponential(Context& c) {
  const Elem elem = real_opmath(c.result());
  return {-log(open_uniform(c, elem, c.result().dims)) / expr(c, c.scalar("lambd", elem))};
}
Values cauchy(Context& c) {
  const Elem elem = real_opmath(c.result());
  const Expr angle = (open_uniform(c, elem, c.result().dims) - 0.5) * std::numbers::pi;
  const Expr tangent = apply("stablehlo.sine", angle) / apply("stablehlo.cosine", angle);
  return {tangent * expr(c, c.scalar("sigma", elem)) + expr(c, c.scalar("median", elem))};
}
Values geometric(Context& c) {  // how often one must try for the first success
  const Elem elem = real_opmath(c.result());
  const Expr failures = log(open_uniform(c, elem, c.result().dims)) / log1p(-expr(c, c.scalar("p", elem)));
  return {apply("stablehlo.ceil", failures)};
}

// ---------------------------------------------------------------- integers

// The largest integer up to which random_() counts, itself included.
int64_t largest_drawn(Elem elem) {
  if (hlo::is_float(elem)) return int64_t{1} << digits(elem);
  if (elem == Elem::Pred) return 1;
  const int bits = static_cast<int>(hlo::byte_size(elem)) * 8 - (hlo::is_unsigned(elem) ? 0 : 1);
  return bits >= 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
}

// Uniform in [low, low + range), a remainder of 64 random bits, as in ATen. Both are 0-d S64; `range` is unsigned.
Value integers_from(Context& c, const Value& low, const Value& range) {
  Builder& b = c.b;
  const Type words{Elem::U64, c.result().dims};
  const Value bits = b.random_bits(c.random_state(), words);
  const Value rest = b.binary("stablehlo.remainder", bits, b.broadcast(b.convert(range, Elem::U64), words.dims));
  return b.add(b.convert(rest, Elem::S64), b.broadcast(low, words.dims));
}

// Uniform in [low, high]. The bounds follow from the element type.
Value integers_between(Context& c, int64_t low, int64_t high) {
  Builder& b = c.b;
  const Type words{Elem::U64, c.result().dims};
  Value bits = b.random_bits(c.random_state(), words);
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;  // 0 stands for 2^64
  if (range > 0 && std::has_single_bit(range)) {
    const Value mask = b.convert(b.constant_int(static_cast<int64_t>(range - 1), words.with(Elem::S64)), Elem::U64);
    bits = b.logical_and(bits, mask);
  } else if (range > 0) {
    const Value divisor = b.convert(b.constant_int(static_cast<int64_t>(range), words.with(Elem::S64)), Elem::U64);
    bits = b.binary("stablehlo.remainder", bits, divisor);
  }
  const Value offset = b.convert(bits, Elem::S64);
  return low == 0 ? offset : b.add(offset, b.constant_int(low, offset.type));
}

Values random_integers(Context& c) {
  if (!c.has_argument("to")) return {integers_between(c, 0, largest_drawn(c.result().elem))};
  Builder& b = c.b;
  const auto number = [&](int64_t v) { return b.constant_int(v, {Elem::S64, {}}); };
  const Value low = c.has_argument("from") ? c.scalar("from", Elem::S64) : number(0);
  if (c.given("to")) return {integers_from(c, low, b.sub(c.scalar("to", Elem::S64), low))};  // wraps as unsigned does
  // from = the smallest int64 and no end is how ATen says: all 64 bits.
  const Value all = b.compare(hlo::Direction::EQ, low, number(std::numeric_limits<int64_t>::min()));
  const Value range = b.add(b.sub(number(largest_drawn(c.result().elem)), low), number(1));
  const Value all_bits = b.convert(b.random_bits(c.random_state(), {Elem::U64, c.result().dims}), Elem::S64);
  return {b.select(all, all_bits, integers_from(c, low, b.select(all, number(1), range)))};
}

// Random words with the position in the low bits, sorted: one operand sorts many times faster than two.
Values random_permutation(Context& c) {
  Builder& b = c.b;
  const int64_t n = c.integer("n");
  if (n == 0) return {b.zeros(c.result())};
  const Type type{Elem::U64, {n}};
  const int64_t mask = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))) - 1;
  const Value low_bits = b.constant_int(mask, type);
  const Value words = b.logical_and(b.random_bits(c.random_state(), type), b.logical_not(low_bits));
  const Values sorted = b.sort({b.logical_or(words, b.iota(type, 0))}, 0,
                               [&](const Values& v) { return b.compare(hlo::Direction::LT, v[0], v[1]); });
  return {b.convert(b.logical_and(sorted[0], low_bits), Elem::S64)};
}

// ---------------------------------------------------------------- multinomial

// With replacement: where a uniform number falls among the running sums of the weights. Never an element of weight 0.
Values multinomial_with_replacement(Context& c) {
  Builder& b = c.b;
  const Value given = c.tensor("self");
  const Elem elem = hlo::compute_elem(given.elem());
  const int64_t n = given.dims().back(), rows = given.type.numel() / n, samples = c.integer("num_samples");
  const Value weights = b.reshape(b.convert(given, elem), {rows, n});
  const Value sums = scan(b, "stablehlo.add", weights, b.zeros({elem, {}}), 1);
  const Dims drawn_dims{rows, samples};
  const Value total = b.broadcast(b.slice_dim(sums, 1, n - 1, n), drawn_dims);
  const Value found = search_sorted(b, sums, uniform_number(c, elem, drawn_dims) * expr(c, total), true);
  const Type index{Elem::S64, {rows, n}};
  const Value possible = b.compare(hlo::Direction::GT, weights, b.zeros(weights.type));
  const Value last = b.amax(b.select(possible, b.iota(index, 1), b.zeros(index)), {1});  // the product may round up
  return {b.reshape(b.min(found, b.broadcast_in_dim(last, drawn_dims, {0})), c.result().dims)};
}

std::vector<Type> multinomial_types(Context& c) {
  Dims dims = c.tensor("self").dims();
  dims.back() = c.integer("num_samples");
  return {{Elem::S64, dims}};
}

// ---------------------------------------------------------------- dropout

Values native_dropout(Context& c) {
  const Expr x = wide(c, "input");
  const Dims& dims = x.v.dims();
  if (c.given("train") && !c.boolean("train")) return {x, c.b.constant(1, {Elem::Pred, dims})};
  const Expr keep = 1 - expr(c, c.scalar("p", Elem::F32));
  const Expr mask = uniform_number(c, Elem::F32, dims) < keep;
  const Expr scale = where(equal(keep, 0), 0, 1 / keep);
  return {x * convert(mask, x.v.elem()) * convert(scale, x.v.elem()), mask};
}

Values native_dropout_backward(Context& c) {
  const Expr g = wide(c, "grad_output");
  return {g * convert(expr(c, c.tensor("mask")), g.v.elem()) * wide_scalar(c, "scale")};
}

// ---------------------------------------------------------------- rrelu

// In training each element that is not positive has a slope of its own, which `noise` keeps (1 for the others).
Values rrelu_with_noise(Context& c) {
  const Expr x = wide(c, "self"), lower = wide_scalar(c, "lower"), upper = wide_scalar(c, "upper");
  if (!c.boolean("training")) return {where(x <= 0, x * ((lower + upper) / 2), x), Value{}};
  const Elem elem = x.v.elem(), narrow = c.tensor("self").elem();
  const Expr drawn_slope = uniform_number(c, elem, x.v.dims()) * (upper - lower) + lower;
  const Expr slope = where(x <= 0, convert(convert(drawn_slope, narrow), elem), 1);
  return {x * slope, slope};
}

Row random_row(std::vector<std::string_view> overloads, Emitter emit, std::string_view remark = {}) {
  return {.overloads = std::move(overloads), .emit = std::move(emit), .random = blocks, .remark = remark};
}

}  // namespace

std::vector<InternalOp> random_ops() {
  return {{"multinomial_with_replacement(Tensor self, int num_samples, Generator? generator) -> Tensor",
           {.emit = multinomial_with_replacement, .shape = multinomial_types, .random = blocks}}};
}

std::vector<Row> random_rows() {
  Row integers = random_row({"random_", "random_.from", "random_.to"}, random_integers);
  integers.inputs = {"from", "to"};
  constexpr std::string_view kParameters =
      "parameters are program inputs: values that ATen refuses are not noticed here";
  Row rrelu =
      random_row({"rrelu_with_noise", "rrelu_with_noise.out", "rrelu_with_noise_"}, rrelu_with_noise, kParameters);
  rrelu.mutates = {"noise"};
  return {
      random_row({"uniform_"}, uniform, kParameters),
      random_row({"normal_", "normal.Tensor_float", "normal.Tensor_float_out", "normal.float_Tensor",
                  "normal.float_Tensor_out", "normal.Tensor_Tensor", "normal.Tensor_Tensor_out"},
                 normal, kParameters),
      random_row({"log_normal_"}, log_normal, kParameters),
      random_row({"bernoulli_.float"}, bernoulli_number, kParameters),
      random_row({"bernoulli_.Tensor", "bernoulli.out"}, bernoulli_tensor, kParameters),
      random_row({"exponential_"}, exponential, kParameters),
      random_row({"cauchy_"}, cauchy, kParameters),
      random_row({"geometric_"}, geometric, kParameters),
      integers,
      random_row({"randperm.generator_out"}, random_permutation),
      random_row({"native_dropout"}, native_dropout),
      rrelu,
      {.overloads = {"native_dropout_backward"}, .emit = native_dropout_backward},
  };
}

}  // namespace tpupilot::ops
