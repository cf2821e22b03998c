#include "ops/lu_forms.h"

#include "ops/indexing.h"

namespace tpupilot::ops {
namespace {

struct Panel {
  Expr values;  // [batch, m, w]
  Expr pivots;  // [batch, w], S32
  Expr order;   // [batch, m, 1], S64: what the panel's swaps did to the rows
  Expr info;    // [batch, 1, 1], S32
};

// What LAPACK compares to find the pivot. NaN counts as the largest.
Expr magnitude(const Expr& x) {
  const auto of_part = [](const Expr& p) { return abs(p); };
  const Expr size = hlo::is_complex(x.v.elem())
                        ? of_part(apply("stablehlo.real", x)) + of_part(apply("stablehlo.imag", x))
                        : of_part(x);
  return where({x.b, x.b->is_nan(size)}, std::numeric_limits<double>::infinity(), size);
}

// The row `i` ([batch, 1, 1]) of each matrix, as [batch, 1, n].
Expr row_at(const Expr& x, const Expr& i) {
  const int64_t batch = x.v.dims()[0], n = x.v.dims()[2];
  const Expr zero = s64(x, 0);
  if (batch == 1) return part(x, {zero, reshape(i, {}), zero}, {1, 1, n});
  const Expr is_i = equal(row_numbers(x), broadcast(i, x.v.dims()));
  return reshape(sum(where(is_i, x, 0), {1}), {batch, 1, n});
}

Expr swapped(const Expr& x, const Expr& j, const Expr& p) {
  const Dims& dims = x.v.dims();
  const Expr row_j = part(x, {s64(x, 0), j, s64(x, 0)}, {dims[0], 1, dims[2]}), row_p = row_at(x, p);
  const Expr i = row_numbers(x);
  const Expr without_p = where(equal(i, broadcast(p, dims)), broadcast(row_j, dims), x);
  return where(equal(i, j), broadcast(row_p, dims), without_p);
}

// [batch, 1, 1], S64: the first row from j on whose entry in `column` is largest.
Expr pivot_row(const Expr& column, const Expr& j) {
  Builder& b = *column.b;
  const Expr i = row_numbers(column);
  const Expr size = where(i >= j, magnitude(column), -1);
  const Dims one = {column.v.dims()[0], 1, 1};
  const Expr largest = reshape({&b, b.amax(size, {1})}, one);
  const Expr candidates = where(equal(size, broadcast(largest, size.v.dims())), i, double(column.v.dims()[1]));
  return reshape({&b, b.amin(candidates, {1})}, one);
}

// Columns 0 .. w-1 of the panel, whose first lies at the matrix's column `first`; `steps` (0-d) of them have a pivot.
Panel factor_panel(const Expr& x, const Expr& first, const Expr& steps) {
  Builder& b = *x.b;
  const int64_t batch = x.v.dims()[0], m = x.v.dims()[1], w = x.v.dims()[2];
  const Dims entry = {batch, 1, 1};
  const auto body = [&](const Values& v) {
    const Expr t{&b, v[0]}, old{&b, v[1]}, pivots{&b, v[2]}, order{&b, v[3]}, info{&b, v[4]};
    const Expr zero = s64(t, 0), j = first + t;
    const Expr p = pivot_row(part(old, {zero, zero, t}, {batch, m, 1}), j);
    const Expr values = swapped(old, j, p);
    const Expr row = part(values, {zero, j, zero}, {batch, 1, w}), pivot = part(row, {zero, zero, t}, entry);
    const Expr column = part(values, {zero, zero, t}, {batch, m, 1});
    const Expr none = equal(pivot, 0);
    const Expr divisor = broadcast(where(none, 1, pivot), column.v.dims());
    const Expr factors = broadcast(column / divisor, values.v.dims());
    const Expr k = column_numbers(values);
    const Expr right = where(k > t, values - factors * broadcast(row, values.v.dims()), values);
    const Expr eliminated = where(equal(k, t), factors, right);
    const Expr place = broadcast(convert(j + s64(j, 1), Elem::S32), entry);
    return Values{t + s64(t, 1), where(row_numbers(values) > j, eliminated, values),
                  with_part(pivots, convert(reshape(p, {batch, 1}) + 1, Elem::S32), {zero, t}), swapped(order, j, p),
                  where(equal(info, 0) & none, place, info)};
  };
  const Values end = b.while_loop(
      {s64(x, 0), x, b.zeros({Elem::S32, {batch, w}}), b.iota({Elem::S64, {batch, m, 1}}, 1),
       b.zeros({Elem::S32, entry})},
      [&](const Values& v) { return b.compare(hlo::Direction::LT, v[0], steps); }, body);
  return {{&b, end[1]}, {&b, end[2]}, {&b, end[3]}, {&b, end[4]}};
}

// The matrix after the panel at column `at` was factored: rows swapped, U beside it, and the rest reduced by its
// product.
Expr after_panel(const Expr& a, const Panel& panel, const Expr& at) {
  const int64_t batch = a.v.dims()[0], size = a.v.dims()[2], m = a.v.dims()[1], w = kMatrixBlock;
  const Expr zero = s64(at, 0), next = at + s64(at, w);
  const Expr moved = with_part(take_rows(a, reshape(panel.order, {batch, m})), panel.values, {zero, zero, at});
  const Expr rows = part(moved, {zero, at, zero}, {batch, w, size});
  const Expr corner = part(panel.values, {zero, at, zero}, {batch, w, w});
  const Expr solved = where(column_numbers(rows) >= next, solve_triangular(corner, rows, {.unit = true}), rows);
  const Expr with_rows = with_part(moved, solved, {zero, at, zero});
  const Expr below = where(row_numbers(panel.values) >= next, panel.values, 0);
  const Expr beside = where(column_numbers(rows) >= next, solved, 0);
  const Expr rest = (row_numbers(a) >= next) & (column_numbers(a) >= next);
  return where(rest, with_rows - multiplied(below, beside), with_rows);
}

Lu factored_by_blocks(const Expr& full) {
  Builder& b = *full.b;
  const int64_t batch = full.v.dims()[0], m = full.v.dims()[1], n = full.v.dims()[2], w = kMatrixBlock;
  const int64_t k = std::min(m, n), blocks = (k + w - 1) / w;
  const Expr a = padded(full, (m + w - 1) / w * w, (n + w - 1) / w * w);
  const auto body = [&](const Values& v) {
    const Expr i{&b, v[0]}, old{&b, v[1]}, pivots{&b, v[2]}, info{&b, v[3]};
    const Expr zero = s64(i, 0), at = i * s64(i, w);
    const Expr columns = part(old, {zero, zero, at}, {batch, old.v.dims()[1], w});
    const Panel panel = factor_panel(columns, at, minimum(s64(i, w), s64(i, k) - at));
    return Values{i + s64(i, 1), after_panel(old, panel, at), with_part(pivots, panel.pivots, {zero, at}),
                  where(equal(info, 0), panel.info, info)};
  };
  const Values end = b.while_loop(
      {s64(a, 0), a, b.zeros({Elem::S32, {batch, blocks * w}}), b.zeros({Elem::S32, {batch, 1, 1}})},
      [&](const Values& v) { return b.compare(hlo::Direction::LT, v[0], s64(a, blocks)); }, body);
  return {{&b, b.slice(end[1], {0, 0, 0}, full.v.dims(), {1, 1, 1})},
          {&b, b.slice_dim(end[2], 1, 0, k)},
          {&b, b.reshape(end[3], {batch})}};
}

}  // namespace

Lu factored(const Expr& a) {
  Builder& b = *a.b;
  const int64_t batch = a.v.dims()[0], k = std::min(a.v.dims()[1], a.v.dims()[2]);
  if (a.v.type.numel() == 0) {
    return {a, {&b, b.zeros({Elem::S32, {batch, k}})}, {&b, b.zeros({Elem::S32, {batch}})}};
  }
  if (k > kMatrixBlock) return factored_by_blocks(a);
  const Panel panel = factor_panel(a, s64(a, 0), s64(a, k));
  return {panel.values, {&b, b.slice_dim(panel.pivots, 1, 0, k)}, reshape(panel.info, {batch})};
}

Expr row_order(const Expr& pivots, int64_t m, bool inverse) {
  Builder& b = *pivots.b;
  const int64_t batch = pivots.v.dims()[0], k = pivots.v.dims()[1];
  const Expr start{&b, b.iota({Elem::S64, {batch, m, 1}}, 1)};
  if (batch * m * k == 0) return reshape(start, {batch, m});
  const auto body = [&](const Values& v) {
    const Expr i{&b, v[0]}, order{&b, v[1]};
    const Expr j = inverse ? s64(i, k - 1) - i : i;
    const Expr p = convert(part(pivots, {s64(i, 0), j}, {batch, 1}), Elem::S64) - 1;
    return Values{i + s64(i, 1), swapped(order, j, reshape(p, {batch, 1, 1}))};
  };
  const Values end = b.while_loop(
      {s64(pivots, 0), start}, [&](const Values& v) { return b.compare(hlo::Direction::LT, v[0], s64(pivots, k)); },
      body);
  return {&b, b.reshape(end[1], {batch, m})};
}

Expr take_rows(const Expr& x, const Expr& order) {
  Builder& b = *x.b;
  const Dims& dims = x.v.dims();
  if (x.v.type.numel() == 0) return x;
  if (dims[0] == 1) return {&b, take_slices(b, x, reshape(order, {dims[1]}), 1)};
  const hlo::Gather g{{2}, {1}, {0}, {0}, {1}, 2, {1, 1, dims[2]}};
  return {&b, b.gather(x, order, g, dims)};
}

Expr permutation_matrix(const Expr& like, const Expr& order) {
  const int64_t batch = order.v.dims()[0], m = order.v.dims()[1];
  const Expr zeros{like.b, like.b->zeros({like.v.elem(), {batch, m, m}})};
  const Expr row_of_column = broadcast(reshape(order, {batch, 1, m}), zeros.v.dims());
  return where(equal(row_numbers(zeros), row_of_column), 1, zeros);
}

Expr solve_with_lu(const Expr& factors, const Expr& pivots, const Expr& b, bool left, bool of_adjoint) {
  if (b.v.type.numel() == 0) return b;
  if (!left) return adjoint(solve_with_lu(factors, pivots, adjoint(b), true, !of_adjoint));
  const Expr order = row_order(pivots, factors.v.dims()[1], of_adjoint);
  if (of_adjoint) {
    const Expr half = solve_triangular(adjoint(factors), b, {.upper = false});
    return take_rows(solve_triangular(adjoint(factors), half, {.upper = true, .unit = true}), order);
  }
  const Expr half = solve_triangular(factors, take_rows(b, order), {.upper = false, .unit = true});
  return solve_triangular(factors, half, {.upper = true});
}

}  // namespace tpupilot::ops
