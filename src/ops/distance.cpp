// _cdist_* and _pdist_*: p-norms of differences of rows. p is a program input; only p = 2 has a program of its own.
#include <limits>

#include "ops/expr.h"
#include "ops/indexing.h"

namespace tpupilot::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Expr sign(const Expr& x) { return apply("stablehlo.sign", x); }
Expr power(const Expr& x, const Expr& p) { return apply("stablehlo.power", x, p); }

// The norm over `dim` of the differences `d`.
Expr norm(Context& c, const Expr& d, int64_t dim) {
  if (c.is_identity("p")) return sqrt(sum(d * d, {dim}));
  const Expr p = expr(c, c.scalar("p", d.v.elem())), size = abs(d);
  const Expr count = sum(where(equal(size, 0), 0, number(size, 1)), {dim});
  const Expr general = sum(power(size, p), {dim});
  const Expr largest = {d.b, d.b->amax(size, {dim})};
  const auto is = [&](double v) { return broadcast(equal(p, v), general.v.dims()); };
  return where(is(0), count, where(is(1), sum(size, {dim}), where(is(kInfinity), largest, power(general, 1 / p))));
}

// d norm / d difference, times the gradient; norm and gradient at the shape of `d`. ATen takes 0 where the norm is 0.
Expr slope(Context& c, const Expr& d, const Expr& norm, const Expr& g) {
  if (c.is_identity("p")) return where(equal(norm, 0), 0, g * d / norm);
  const Expr p = broadcast(expr(c, c.scalar("p", d.v.elem())), d.v.dims()), size = abs(d);
  const Expr nothing = equal(norm, 0) | (equal(size, 0) & (p < 1));
  const Expr general = where(nothing, 0, sign(d) * power(size, p - 1) * g / power(norm, p - 1));
  const Expr at_infinity = where(equal(size, norm), g * sign(d), 0);
  return where(equal(p, 0), 0, where(equal(p, 1), g * sign(d), where(equal(p, kInfinity), at_infinity, general)));
}

// [batch, n, m], whatever the batch dims.
Expr stacked(const Expr& x, int64_t batch) {
  const Dims& d = x.v.dims();
  return reshape(x, {batch, d[d.size() - 2], d.back()});
}

Expr differences(const Expr& x1, const Expr& x2) {
  const Dims &a = x1.v.dims(), &b = x2.v.dims(), all{a[0], a[1], b[1], a[2]};
  return Expr{x1.b, x1.b->broadcast_in_dim(x1, all, {0, 1, 3})} -
         Expr{x1.b, x1.b->broadcast_in_dim(x2, all, {0, 2, 3})};
}

// |a - b|^2 = |a|^2 + |b|^2 - 2 a b, as ATen does for many rows.
Expr by_products(const Expr& x1, const Expr& x2) {
  Builder& b = *x1.b;
  const Dims out{x1.v.dims()[0], x1.v.dims()[1], x2.v.dims()[1]};
  const Expr product{&b, b.dot_general(x1, x2, {0}, {0}, {2}, {2})};
  const Expr left{&b, b.broadcast_in_dim(sum(x1 * x1, {2}), out, {0, 1})},
      right{&b, b.broadcast_in_dim(sum(x2 * x2, {2}), out, {0, 2})};
  return sqrt(maximum(left + right - 2.0 * product, 0));
}

bool wants_products(Context& c, int64_t rows1, int64_t rows2) {
  const int64_t mode = c.given("compute_mode") ? c.integer("compute_mode") : 0;
  return mode == 1 || (mode == 0 && (rows1 > 25 || rows2 > 25));
}

Expr batched(Context& c, std::string_view name, const Dims& batch) {
  Expr x = wide(c, name);
  const Dims& d = x.v.dims();
  Dims full = batch;
  full.insert(full.end(), d.end() - 2, d.end());
  return stacked(broadcast(x, full), hlo::product(batch));
}

Values cdist(Context& c) {
  const Dims& out = c.result().dims;
  const Dims batch(out.begin(), out.end() - 2);
  const Expr x1 = batched(c, "x1", batch), x2 = batched(c, "x2", batch);
  if (c.result().numel() == 0 || x1.v.dims()[2] == 0) return {c.b.zeros(c.result())};
  if (c.is_identity("p") && wants_products(c, out[out.size() - 2], out.back()))
    return {reshape(by_products(x1, x2), out)};
  return {reshape(norm(c, differences(x1, x2), 3), out)};
}

Values cdist_backward(Context& c) {
  const Dims out = c.tensor("cdist").dims();
  const Dims batch(out.begin(), out.end() - 2);
  const Expr x1 = batched(c, "x1", batch), x2 = batched(c, "x2", batch);
  if (c.result().numel() == 0 || hlo::product(out) == 0 || x1.v.dims()[2] == 0) return {c.b.zeros(c.result())};
  const Expr d = differences(x1, x2);
  const auto spread = [&](std::string_view name) {
    const Expr x = stacked(wide(c, name), hlo::product(batch));
    return Expr{&c.b, c.b.broadcast_in_dim(x, d.v.dims(), {0, 1, 2})};
  };
  return {reshape(sum(slope(c, d, spread("cdist"), spread("grad")), {2}), c.result().dims)};
}

// ---------------------------------------------------------------- pairs i < j, in the order (0, 1), (0, 2), ...

struct Pairs {
  Value first, second;  // S64
};
Pairs pairs_of(Context& c, int64_t n) {
  const int64_t count = n * (n - 1) / 2;
  const Expr k = expr(c, c.b.iota({Elem::F64, {count}}, 0));
  const double middle = static_cast<double>(n) - 0.5;
  // The row whose pairs start at or before k: row i starts at n i - i (i + 1) / 2.
  const Expr i = apply("stablehlo.floor", middle - sqrt((middle * middle - 1) - 2 * k));
  const Expr j = k - static_cast<double>(n) * i + i * (i + 1) * 0.5 + i + 1;
  return {convert(i, Elem::S64), convert(j, Elem::S64)};
}

Values pdist(Context& c) {
  const Expr x = wide(c, "self");
  if (c.result().numel() == 0 || x.v.dims()[1] == 0) return {c.b.zeros(c.result())};
  const Pairs p = pairs_of(c, x.v.dims()[0]);
  return {norm(c, expr(c, take_slices(c.b, x, p.first, 0)) - expr(c, take_slices(c.b, x, p.second, 0)), 1)};
}

Values pdist_backward(Context& c) {
  Builder& b = c.b;
  const Expr x = wide(c, "self");
  if (c.result().numel() == 0 || c.tensor("pdist").type.numel() == 0) return {b.zeros(c.result())};
  const Pairs p = pairs_of(c, x.v.dims()[0]);
  const Expr d = expr(c, take_slices(b, x, p.first, 0)) - expr(c, take_slices(b, x, p.second, 0));
  const Expr part = slope(c, d, along(wide(c, "pdist"), 0, d.v.dims()), along(wide(c, "grad"), 0, d.v.dims()));
  const Value first = put_slices(b, b.zeros(x.v.type), p.first, part, 0, "stablehlo.add");
  return {put_slices(b, first, p.second, -part, 0, "stablehlo.add")};
}

}  // namespace

std::vector<Row> distance_rows() {
  std::vector<Row> rows = {
      {.overloads = {"_cdist_forward"}, .emit = cdist},
      {.overloads = {"_cdist_backward"}, .emit = cdist_backward},
      {.overloads = {"_pdist_forward"}, .emit = pdist},
      {.overloads = {"_pdist_backward"}, .emit = pdist_backward},
  };
  for (Row& row : rows) row.identities = {{"p", 2}};
  return rows;
}

}  // namespace tpupilot::ops
