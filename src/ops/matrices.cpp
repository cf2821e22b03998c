#include "ops/matrices.h"

namespace tpupilot::ops {
namespace {

constexpr int64_t kSmall = 64;  // up to here the built-in triangular_solve is as fast as blocks

Expr built_in_solve(const Expr& a, const Expr& b, Triangle t) {
  const std::string properties = std::string("left_side = true, lower = ") + (t.upper ? "false" : "true") +
                                 ", unit_diagonal = " + (t.unit ? "true" : "false") +
                                 ", transpose_a = #stablehlo<transpose NO_TRANSPOSE>";
  return {a.b, a.b->op("stablehlo.triangular_solve", {a, b}, b.v.type, properties)};
}

// Zeros behind the last row and column, and ones on the diagonal there.
Expr padded_with_identity(const Expr& a, int64_t n) {
  const int64_t old = a.v.dims()[1];
  const Expr grown = padded(a, n, n);
  const Expr diagonal = equal(row_numbers(grown), column_numbers(grown)) & (row_numbers(grown) >= double(old));
  return where(diagonal, 1, grown);
}

// Block by block: what is known of X is multiplied away, and the block on the diagonal solved. A loop, so that the
// program does not grow with the matrix.
Expr solve_by_blocks(const Expr& full, const Expr& b, Triangle t) {
  Builder& builder = *full.b;
  const int64_t batch = full.v.dims()[0], n = full.v.dims()[1], k = b.v.dims()[2], w = kMatrixBlock;
  const int64_t blocks = (n + w - 1) / w, size = blocks * w;
  const Expr a = padded_with_identity(triangle(full, t.upper), size);
  const Expr rhs = padded(b, size, k);
  const auto body = [&](const Values& v) {
    const Expr i{&builder, v[0]}, x{&builder, v[1]};
    const Expr zero = s64(i, 0);
    const Expr at = (t.upper ? s64(i, blocks - 1) - i : i) * s64(i, w);
    const Expr rows = part(a, {zero, at, zero}, {batch, w, size});
    const Expr left = part(rhs, {zero, at, zero}, {batch, w, k}) - multiplied(rows, x);
    const Expr solved = built_in_solve(part(a, {zero, at, at}, {batch, w, w}), left, t);
    return Values{i + s64(i, 1), with_part(x, solved, {zero, at, zero})};
  };
  const Values end = builder.while_loop(
      {s64(b, 0), builder.zeros(rhs.v.type)},
      [&](const Values& v) { return compare(hlo::Direction::LT, {&builder, v[0]}, s64(b, blocks)).v; }, body);
  return {&builder, builder.slice_dim(end[1], 1, 0, n)};
}

}  // namespace

Expr as_batch(const Expr& x) { return as_batch(x, Dims(x.v.dims().begin(), x.v.dims().end() - 2)); }

Expr as_batch(const Expr& x, const Dims& batch) {
  const int64_t m = x.v.dims()[x.v.dims().size() - 2], n = x.v.dims().back();
  Dims full = batch;
  full.insert(full.end(), {m, n});
  return reshape(broadcast(x, full), {hlo::product(batch), m, n});
}

Expr conjugate(const Expr& x) {
  if (!hlo::is_complex(x.v.elem())) return x;
  return apply("stablehlo.complex", apply("stablehlo.real", x), -apply("stablehlo.imag", x));
}

Expr transposed(const Expr& x) { return {x.b, x.b->transpose(x, {0, 2, 1})}; }

Expr adjoint(const Expr& x) { return conjugate(transposed(x)); }

Expr multiplied(const Expr& x, const Expr& y) { return {x.b, x.b->dot_general(x, y, {0}, {0}, {2}, {1})}; }

Expr row_numbers(const Expr& x) { return {x.b, x.b->iota({Elem::S64, x.v.dims()}, 1)}; }

Expr column_numbers(const Expr& x) { return {x.b, x.b->iota({Elem::S64, x.v.dims()}, 2)}; }

Expr identity_matrix(const Expr& like, int64_t batch, int64_t n) {
  const Expr zeros{like.b, like.b->zeros({like.v.elem(), {batch, n, n}})};
  return where(equal(row_numbers(zeros), column_numbers(zeros)), 1, zeros);
}

Expr triangle(const Expr& x, bool upper, int64_t diagonal) {
  const Expr distance = column_numbers(x) - row_numbers(x);
  const auto offset = static_cast<double>(diagonal);
  return where(upper ? distance >= offset : distance <= offset, x, 0);
}

Expr s64(const Expr& like, int64_t v) { return {like.b, like.b->constant_int(v, {Elem::S64, {}})}; }

Expr part(const Expr& x, const std::vector<Expr>& starts, const Dims& sizes) {
  return {x.b, x.b->dynamic_slice(x, Values(starts.begin(), starts.end()), sizes)};
}

Expr with_part(const Expr& x, const Expr& update, const std::vector<Expr>& starts) {
  return {x.b, x.b->dynamic_update_slice(x, update, Values(starts.begin(), starts.end()))};
}

Expr padded(const Expr& x, int64_t m, int64_t n) {
  const Dims& dims = x.v.dims();
  if (dims[1] == m && dims[2] == n) return x;
  return {x.b, x.b->pad(x, x.b->zeros({x.v.elem(), {}}), {0, 0, 0}, {0, m - dims[1], n - dims[2]}, {0, 0, 0})};
}

Expr solve_triangular(const Expr& a, const Expr& b, Triangle t, bool left) {
  if (b.v.type.numel() == 0) return b;
  if (!left) {
    return transposed(solve_triangular(transposed(a), transposed(b), {.upper = !t.upper, .unit = t.unit}));
  }
  return a.v.dims()[1] <= kSmall ? built_in_solve(a, b, t) : solve_by_blocks(a, b, t);
}

}  // namespace tpupilot::ops
