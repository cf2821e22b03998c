// LU factorisations, and what is computed with them: solutions, inverses, determinants.
#include "ops/lu_forms.h"

namespace tpupilot::ops {
namespace {

// ATen on the CPU has no LU without pivoting.
void check_pivots(Context& c, std::string_view api) {
  if (!c.boolean("pivot")) throw hlo::Error(std::string(api) + ": LU without pivoting is not implemented on the CPU");
}

Dims batch_of(const hlo::Type& matrices) { return {matrices.dims.begin(), matrices.dims.end() - 2}; }

Values lu_factor_ex(Context& c) {
  check_pivots(c, "linalg.lu_factor");
  const Lu lu = factored(as_batch(expr(c, c.tensor("A"))));
  return {lu.factors, lu.pivots, lu.info};
}

Expr lower_factor(const Expr& factors, int64_t k) {
  const Expr l{factors.b, factors.b->slice_dim(factors, 2, 0, k)};
  return where(equal(row_numbers(l), column_numbers(l)), 1, triangle(l, false));
}

Expr upper_factor(const Expr& factors, int64_t k) {
  return triangle({factors.b, factors.b->slice_dim(factors, 1, 0, k)}, true);
}

Values unpacked(Context& c, const Expr& factors, const Expr& pivots, bool data, bool permutation) {
  Builder& b = c.b;
  const int64_t m = factors.v.dims()[1], k = std::min(m, factors.v.dims()[2]);
  Values results;
  for (size_t i = 0; i < 3; ++i) results.push_back(b.zeros(c.result(i)));
  if (permutation) results[0] = permutation_matrix(factors, row_order(pivots, m, false));
  if (data) {
    results[1] = lower_factor(factors, k);
    results[2] = upper_factor(factors, k);
  }
  return results;
}

Values lu_decomposition(Context& c) {
  check_pivots(c, "linalg.lu_factor");
  const Lu lu = factored(as_batch(expr(c, c.tensor("A"))));
  return unpacked(c, lu.factors, lu.pivots, true, true);
}

Expr flat_pivots(const Expr& pivots, const Dims& batch) {
  Dims full = batch;
  full.push_back(pivots.v.dims().back());
  return reshape(broadcast(pivots, full), {hlo::product(batch), full.back()});
}

Values lu_unpack(Context& c) {
  const Expr data = expr(c, c.tensor("LU_data"));
  const Expr pivots = flat_pivots(expr(c, c.tensor("LU_pivots")), batch_of(data.v.type));
  return unpacked(c, as_batch(data), pivots, c.boolean("unpack_data"), c.boolean("unpack_pivots"));
}

Values lu_solve(Context& c) {
  const Dims batch = batch_of(c.result());
  return {solve_with_lu(as_batch(expr(c, c.tensor("LU")), batch), flat_pivots(expr(c, c.tensor("pivots")), batch),
                        as_batch(expr(c, c.tensor("B")), batch), c.boolean("left"), c.boolean("adjoint"))};
}

Values solve_ex(Context& c) {
  const Expr a = expr(c, c.tensor("A")), b = expr(c, c.tensor("B"));
  const Dims own = batch_of(a.v.type);
  Dims vectors = own;
  vectors.push_back(a.v.dims().back());
  const bool is_vector = b.v.rank() == 1 || (b.v.rank() == a.v.rank() - 1 && b.v.dims() == vectors);
  Dims batch = c.result().dims;
  batch.resize(batch.size() - (is_vector ? 1 : 2));
  const Lu lu = factored(as_batch(a));
  Dims column = b.v.dims();
  if (is_vector) column.push_back(1);
  Dims lu_dims = own;
  lu_dims.insert(lu_dims.end(), {a.v.dims().back(), a.v.dims().back()});
  const Expr factors = as_batch(reshape(lu.factors, lu_dims), batch);
  const Expr pivots = flat_pivots(reshape(lu.pivots, vectors), batch);
  const Expr x = solve_with_lu(factors, pivots, as_batch(reshape(b, column), batch), c.boolean("left"), false);
  return {x, lu.factors, lu.pivots, lu.info};
}

Values inverse(Context& c) {
  const Expr a = as_batch(expr(c, c.tensor("A")));
  const Lu lu = factored(a);
  const Expr identity = identity_matrix(a, a.v.dims()[0], a.v.dims()[1]);
  return {solve_with_lu(lu.factors, lu.pivots, identity, true, false), lu.info};
}

// For determinants ATen factors the transpose of a real matrix that is contiguous: their derivatives count on it.
Lu factored_for_determinant(Context& c) {
  const Expr a = as_batch(expr(c, c.tensor("A")));
  const bool of_transpose = c.is_contiguous("A") && !hlo::is_complex(a.v.elem());
  return factored(of_transpose ? transposed(a) : a);
}

Expr diagonal(const Expr& x) {  // [batch, n]
  return sum(where(equal(row_numbers(x), column_numbers(x)), x, 0), {2});
}

// [batch, 1]
Expr multiplied_over_row(const Expr& x) {
  const Value one = x.b->constant(1, {x.v.elem(), {}});
  return {x.b, x.b->reduce("stablehlo.multiply", x, one, {1})};
}

// [batch]: -1 for an odd number of swaps.
Expr sign_of_swaps(const Lu& lu, Elem elem) {
  Builder& b = *lu.pivots.b;
  const Expr stays{&b, b.iota(lu.pivots.v.type, 1)};
  const Expr swaps = !equal(lu.pivots, stays + 1);
  const Expr ones{&b, b.constant(1, lu.pivots.v.type.with(hlo::real_of(elem)))};
  return convert(multiplied_over_row(where(swaps, -1, ones)), elem);
}

Values det(Context& c) {
  const Lu lu = factored_for_determinant(c);
  return {multiplied_over_row(diagonal(lu.factors)) * sign_of_swaps(lu, lu.factors.v.elem()), lu.factors, lu.pivots};
}

Values slogdet(Context& c) {
  const Lu lu = factored_for_determinant(c);
  const Expr u = diagonal(lu.factors), size = abs(u);
  const Expr signs = apply("stablehlo.sign", u);
  const Expr sign = multiplied_over_row(signs) * sign_of_swaps(lu, u.v.elem());
  return {sign, sum(log(size), {1}), lu.factors, lu.pivots};
}

}  // namespace

std::vector<Row> lu_rows() {
  return {
      {.overloads = {"linalg_lu_factor_ex.out"}, .emit = lu_factor_ex, .checks_errors_as = "torch.linalg.lu_factor_ex"},
      {.overloads = {"linalg_lu.out"}, .emit = lu_decomposition},
      {.overloads = {"lu_unpack.out"},
       .emit = lu_unpack,
       .remark = "a pivot out of range moves no row; ATen on CPU raises"},
      {.overloads = {"linalg_lu_solve.out"}, .emit = lu_solve},
      {.overloads = {"_linalg_solve_ex.result"}, .emit = solve_ex, .checks_errors_as = "torch.linalg.solve_ex"},
      {.overloads = {"linalg_inv_ex.inverse"}, .emit = inverse, .checks_errors_as = "linalg.inv_ex"},
      {.overloads = {"_linalg_det.result"}, .emit = det},
      {.overloads = {"_linalg_slogdet.sign"}, .emit = slogdet},
  };
}

}  // namespace tpupilot::ops
