// Products of vectors, triangular systems, and the exponential of a matrix.
#include "ops/matrices.h"

namespace tpupilot::ops {
namespace {

// In the arguments' own type, as ATen computes it: narrow floats round after each product.
Values cross(Context& c) {
  const hlo::Type& type = c.result();
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), type.rank());
  const auto turned = [&](std::string_view name, int64_t by) {  // element i is element i + by of the argument
    const Value x = c.tensor_as(name, type.elem, type.dims);
    return expr(c, c.b.concatenate({c.b.slice_dim(x, dim, by, 3), c.b.slice_dim(x, dim, 0, by)}, dim));
  };
  return {turned("self", 1) * turned("other", 2) - turned("self", 2) * turned("other", 1)};
}

Dims batch_of(const hlo::Type& matrices) { return {matrices.dims.begin(), matrices.dims.end() - 2}; }

Values solve_triangular_row(Context& c) {
  const Dims batch = batch_of(c.result());
  const Triangle t{.upper = c.boolean("upper"), .unit = c.boolean("unitriangular")};
  return {solve_triangular(as_batch(expr(c, c.tensor("self")), batch), as_batch(expr(c, c.tensor("B")), batch), t,
                           c.boolean("left"))};
}

Values old_triangular_solve(Context& c) {
  const Dims batch = batch_of(c.result());
  const Expr whole = as_batch(expr(c, c.tensor("A")), batch), b = as_batch(expr(c, c.tensor("self")), batch);
  Triangle t{.upper = c.boolean("upper"), .unit = c.boolean("unitriangular")};
  Expr a = whole;
  if (c.boolean("transpose")) {
    a = transposed(a);
    t.upper = !t.upper;
  }
  return {solve_triangular(a, b, t), whole};
}

// The Taylor series up to x^18 / 18!, in powers of x^4 (Paterson and Stockmeyer 1973).
Expr taylor(const Expr& x) {
  constexpr int kDegree = 18, kStep = 4;
  const Expr x2 = multiplied(x, x), x3 = multiplied(x2, x), x4 = multiplied(x2, x2);
  const Expr one = identity_matrix(x, x.v.dims()[0], x.v.dims()[1]);
  const Expr* powers[] = {&one, &x, &x2, &x3};
  double inverse[kDegree + 1] = {1};
  for (int i = 1; i <= kDegree; ++i) inverse[i] = inverse[i - 1] / i;
  Expr result = number(x, 0);
  for (int block = kDegree / kStep; block >= 0; --block) {
    if (block < kDegree / kStep) result = multiplied(x4, result);
    for (int i = 0; i < kStep && block * kStep + i <= kDegree; ++i) {
      result = result + *powers[i] * inverse[block * kStep + i];
    }
  }
  return result;
}

// 2^-s, exactly: the bits of its exponent. For s up to the smallest normal number's.
Expr inverse_power_of_two(const Expr& s) {
  Builder& b = *s.b;
  const bool wide = s.v.elem() == Elem::F64;
  const Expr exponent = convert((wide ? 1023 : 127) - s, wide ? Elem::S64 : Elem::S32);
  const Expr shift{&b, b.constant_int(wide ? 52 : 23, exponent.v.type)};
  return {&b, b.bitcast(apply("stablehlo.shift_left", exponent, shift), s.v.type)};
}

// Scaling and squaring: exp(x) = exp(x / 2^s)^(2^s), with s of each matrix such that the scaled 1-norm is below the
// bound at which the series of degree 18 is exact to rounding (Bader, Blanes and Casas, "Computing the matrix
// exponential with an optimized Taylor polynomial approximation", Mathematics 7 (2019) 1174).
Expr exponential(const Expr& x) {
  Builder& b = *x.b;
  const int64_t batch = x.v.dims()[0];
  const Elem real = hlo::real_of(x.v.elem());
  const double bound = real == Elem::F64 ? 1.090863719290036 : 3.010066362817634;
  const double most = real == Elem::F64 ? 1022 : 126;  // the largest exponents overflow in any case
  const Expr norm = reshape({&b, b.amax(sum(abs(x), {1}), {1})}, {batch, 1, 1});
  const Expr wanted = apply("stablehlo.ceil", log(norm / bound) / 0.69314718055994530942);
  const Expr squarings = minimum(where(wanted > 0, wanted, 0), most);  // none for NaN
  const Expr scale = broadcast(convert(inverse_power_of_two(squarings), x.v.elem()), x.v.dims());
  const Expr count = convert(squarings, Elem::S64);
  const Expr longest{&b, b.amax(count, {0, 1, 2})};
  const auto body = [&](const Values& v) {
    const Expr i{&b, v[0]}, y{&b, v[1]};
    return Values{i + s64(i, 1), where(broadcast(i < count, y.v.dims()), multiplied(y, y), y)};
  };
  const Values end = b.while_loop(
      {s64(x, 0), taylor(x * scale)}, [&](const Values& v) { return b.compare(hlo::Direction::LT, v[0], longest); },
      body);
  return {&b, end[1]};
}

Values matrix_exp(Context& c) {
  const Expr x = as_batch(expr(c, c.tensor("self")));
  if (x.v.type.numel() == 0) return {x};
  return {exponential(convert(x, result_opmath(c)))};
}

}  // namespace

std::vector<Row> linalg_rows() {
  return {
      {.overloads = {"linalg_cross.out"}, .emit = cross},
      {.overloads = {"linalg_solve_triangular", "linalg_solve_triangular.out"}, .emit = solve_triangular_row},
      {.overloads = {"triangular_solve.X"}, .emit = old_triangular_solve},
      {.overloads = {"linalg_matrix_exp"}, .emit = matrix_exp},
  };
}

}  // namespace tpupilot::ops
