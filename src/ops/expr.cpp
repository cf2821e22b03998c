#include "ops/expr.h"

namespace tpupilot::ops {
namespace {

// A 0-d operand takes the other's shape.
std::pair<Value, Value> of_one_shape(const Expr& x, const Expr& y) {
  Builder& b = *x.b;
  if (x.v.rank() == 0) return {b.broadcast(x, y.v.dims()), y.v};
  if (y.v.rank() == 0) return {x.v, b.broadcast(y, x.v.dims())};
  return {x.v, y.v};
}

}  // namespace

Elem result_opmath(Context& c) { return hlo::compute_elem(c.result().elem); }

Expr wide(Context& c, std::string_view tensor) { return convert(expr(c, c.tensor(tensor)), result_opmath(c)); }

Expr wide_like_result(Context& c, std::string_view tensor) { return broadcast(wide(c, tensor), c.result().dims); }

Expr wide_scalar(Context& c, std::string_view scalar) { return expr(c, c.scalar(scalar, result_opmath(c))); }

Expr number(const Expr& like, double v) { return {like.b, like.b->constant(v, like.v.type)}; }

Expr apply(std::string_view op, const Expr& x) { return {x.b, x.b->unary(op, x)}; }

Expr apply(std::string_view op, const Expr& x, const Expr& y) {
  const auto [left, right] = of_one_shape(x, y);
  return {x.b, x.b->binary(op, left, right)};
}

Expr compare(hlo::Direction d, const Expr& x, const Expr& y) {
  const auto [left, right] = of_one_shape(x, y);
  return {x.b, x.b->compare(d, left, right)};
}

Expr where(const Expr& pred, const Expr& on_true, const Expr& on_false) {
  auto [left, right] = of_one_shape(on_true, on_false);
  Builder& b = *pred.b;
  if (left.rank() == 0 && pred.v.rank() > 0) {
    left = b.broadcast(left, pred.v.dims());
    right = b.broadcast(right, pred.v.dims());
  }
  return {&b, b.select(pred, left, right)};
}

Expr log1p(const Expr& x) {
  if (!x.b->target().cpu() || hlo::is_complex(x.v.elem())) return apply("stablehlo.log_plus_one", x);
  // log(u) x / (u - 1) makes up for the rounding of u = 1 + x, and is several times faster than the CPU plugins' own
  // op. XLA rewrites (1 + x) - 1 to x, which would undo it: the maximum, which changes no u that has a logarithm, is in
  // its way.
  const Expr u = 1 + x;
  const Expr corrected = log(u) * (x / (maximum(u, 0) - 1));
  const Expr infinite = equal(u, std::numeric_limits<double>::infinity());
  return where(equal(u, 1), x, where(infinite, u, corrected));
}

Expr atan2(const Expr& y, const Expr& x) {
  return apply("stablehlo.atan2", y, x.b->target().constant_atan2_is_wrong ? Expr{x.b, x.b->barrier(x)} : x);
}

Expr sign_is_set(const Expr& x) {
  Builder& b = *x.b;
  if (!hlo::is_float(x.v.elem())) return x < 0;
  static constexpr Elem kBits[] = {Elem::S16, Elem::S32, Elem::S64};
  const Elem bits = kBits[hlo::byte_size(x.v.elem()) / 4];
  return Expr{&b, b.bitcast(x, {bits, x.v.dims()})} < 0;
}

Expr along(const Expr& vector, int64_t dim, const Dims& dims) {
  return {vector.b, vector.b->broadcast_in_dim(vector, dims, {dim})};
}

Expr sum_like(const Expr& x, const Dims& dims) { return {x.b, x.b->unreduce(x.b->sum(x, dims), x.v.dims(), dims)}; }

Expr amax_like(const Expr& x, const Dims& dims) { return {x.b, x.b->unreduce(x.b->amax(x, dims), x.v.dims(), dims)}; }

Expr row_sums(const Expr& x) {
  constexpr int64_t kLongest = 4096;  // longer rows lose digits in a product
  const int64_t n = x.v.dims()[1];
  if (!x.b->target().cpu() || n > kLongest || x.v.type.numel() == 0) return sum(x, {1});
  return {x.b, x.b->exact_dot_general(x, x.b->constant(1, {x.v.elem(), {n}}), {}, {}, {1}, {0})};
}

}  // namespace tpupilot::ops
