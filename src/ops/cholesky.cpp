// Cholesky factorisations, and solving with them. Only one triangle of the input is read.
#include "ops/matrices.h"

namespace tpupilot::ops {
namespace {

struct Factor {
  Expr lower;  // [batch, n, n]
  Expr info;   // [batch, 1, 1], S32: 0, or the order of the first leading minor that is not positive
};

Expr s32_zeros(const Expr& like, int64_t batch) { return {like.b, like.b->zeros({Elem::S32, {batch, 1, 1}})}; }

// The first failure stays.
Expr first_failure(const Expr& info, const Expr& failed, const Expr& order) {
  const Expr now = broadcast(convert(order, Elem::S32), info.v.dims());
  return where(equal(info, 0) & failed, now, info);
}

// Column by column, from those that are known (left-looking).
Factor factor_columns(const Expr& a) {
  Builder& b = *a.b;
  const int64_t batch = a.v.dims()[0], n = a.v.dims()[1];
  const auto body = [&](const Values& v) {
    const Expr j{&b, v[0]}, l{&b, v[1]}, info{&b, v[2]};
    const Expr zero = s64(j, 0);
    const Expr row = part(l, {zero, j, zero}, {batch, 1, n});
    const Expr rest = part(a, {zero, zero, j}, {batch, n, 1}) - multiplied(l, adjoint(row));
    Expr square = part(rest, {zero, j, zero}, {batch, 1, 1});
    if (hlo::is_complex(square.v.elem())) square = apply("stablehlo.real", square);
    const Expr failed = !(square > 0);  // NaN fails too
    const Expr root = convert(sqrt(where(failed, 1, square)), a.v.elem());
    const Expr i = row_numbers(rest);
    const Expr scaled = rest / broadcast(root, rest.v.dims());
    const Expr below = where(i > j, scaled, 0);
    const Expr column = where(equal(i, j), broadcast(root, rest.v.dims()), below);
    return Values{j + s64(j, 1), with_part(l, column, {zero, zero, j}), first_failure(info, failed, j + s64(j, 1))};
  };
  const Values end = b.while_loop(
      {s64(a, 0), b.zeros(a.v.type), s32_zeros(a, batch)},
      [&](const Values& v) { return b.compare(hlo::Direction::LT, v[0], s64(a, n)); }, body);
  return {{&b, end[1]}, {&b, end[2]}};
}

// Columns of blocks in the same way.
Factor factor_blocks(const Expr& full) {
  Builder& b = *full.b;
  const int64_t batch = full.v.dims()[0], n = full.v.dims()[1], w = kMatrixBlock;
  const int64_t blocks = (n + w - 1) / w, size = blocks * w;
  const Expr grown = padded(full, size, size);
  const Expr diagonal = equal(row_numbers(grown), column_numbers(grown));
  const Expr a = where(diagonal & (row_numbers(grown) >= static_cast<double>(n)), 1, grown);
  const auto body = [&](const Values& v) {
    const Expr k{&b, v[0]}, l{&b, v[1]}, info{&b, v[2]};
    const Expr zero = s64(k, 0), at = k * s64(k, w);
    const Expr rows = part(l, {zero, at, zero}, {batch, w, size});
    const Expr rest = part(a, {zero, zero, at}, {batch, size, w}) - multiplied(l, adjoint(rows));
    const Factor block = factor_columns(part(rest, {zero, at, zero}, {batch, w, w}));
    const Expr solved = solve_triangular(adjoint(block.lower), rest, {.upper = true}, false);
    const Expr below = where(row_numbers(rest) >= at + s64(k, w), solved, 0);
    const Expr column = with_part(below, block.lower, {zero, at, zero});
    const Expr order = broadcast(convert(at, Elem::S32), info.v.dims()) + block.info;
    return Values{k + s64(k, 1), with_part(l, column, {zero, zero, at}),
                  first_failure(info, !equal(block.info, 0), order)};
  };
  const Values end = b.while_loop(
      {s64(a, 0), b.zeros(a.v.type), s32_zeros(a, batch)},
      [&](const Values& v) { return b.compare(hlo::Direction::LT, v[0], s64(a, blocks)); }, body);
  return {{&b, b.slice(end[1], {0, 0, 0}, full.v.dims(), {1, 1, 1})}, {&b, end[2]}};
}

// Columns from the first failure on keep the input, as LAPACK leaves those that it did not reach.
Factor factor(const Expr& input) {
  const Expr a = triangle(input, false);
  const int64_t batch = a.v.dims()[0];
  if (a.v.type.numel() == 0) return {a, s32_zeros(a, batch)};
  const Factor f = a.v.dims()[1] <= kMatrixBlock ? factor_columns(a) : factor_blocks(a);
  const Expr info = broadcast(convert(f.info, Elem::S64), a.v.dims());
  const Expr reached = equal(info, 0) | (column_numbers(a) + 1 < info);
  return {where(reached, f.lower, a), f.info};
}

Values cholesky_ex(Context& c) {
  const bool upper = c.boolean("upper");
  const Expr a = as_batch(expr(c, c.tensor("self")));
  const Factor f = factor(upper ? adjoint(a) : a);
  return {upper ? adjoint(f.lower) : f.lower, f.info};
}

// X with L L^H X = B, or U^H U X = B.
Expr solve_with_factor(const Expr& factor, const Expr& b, bool upper) {
  const Expr lower = upper ? adjoint(factor) : factor, back = upper ? factor : adjoint(factor);
  return solve_triangular(back, solve_triangular(lower, b, {.upper = false}), {.upper = true});
}

Values cholesky_solve(Context& c) {
  return {solve_with_factor(as_batch(expr(c, c.tensor("A"))), as_batch(expr(c, c.tensor("self"))), c.boolean("upper"))};
}

Values cholesky_inverse(Context& c) {
  const Expr l = as_batch(expr(c, c.tensor("self")));
  return {solve_with_factor(l, identity_matrix(l, l.v.dims()[0], l.v.dims()[1]), c.boolean("upper"))};
}

}  // namespace

std::vector<Row> cholesky_rows() {
  return {
      {.overloads = {"linalg_cholesky_ex.L"}, .emit = cholesky_ex, .checks_errors_as = "linalg.cholesky_ex"},
      {.overloads = {"_cholesky_solve_helper"}, .emit = cholesky_solve},
      {.overloads = {"cholesky_inverse", "cholesky_inverse.out"}, .emit = cholesky_inverse},
  };
}

}  // namespace tpupilot::ops
