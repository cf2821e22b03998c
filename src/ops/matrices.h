// Batches of matrices, [batch, rows, columns]: what the factorisations and solvers have in common.
#pragma once

#include "ops/expr.h"

namespace tpupilot::ops {

constexpr int64_t kMatrixBlock = 32;  // the width that pays on XLA's CPU client; larger matrices go block by block

struct Triangle {
  bool upper = false;
  bool unit = false;  // the diagonal is taken as 1 and not read
};

// [..., m, n] -> [batch, m, n]; with the leading dims broadcast to `batch` first.
Expr as_batch(const Expr& x);
Expr as_batch(const Expr& x, const Dims& batch);

Expr conjugate(const Expr& x);  // of a real value: itself
Expr transposed(const Expr& x);
Expr adjoint(const Expr& x);
Expr multiplied(const Expr& x, const Expr& y);  // the matrix product
Expr identity_matrix(const Expr& like, int64_t batch, int64_t n);

// Row or column numbers in the shape of x; S64.
Expr row_numbers(const Expr& x);
Expr column_numbers(const Expr& x);
Expr triangle(const Expr& x, bool upper, int64_t diagonal = 0);  // torch.triu, torch.tril

// The part of `sizes` that begins at `starts`, which are 0-d S64; and its inverse.
Expr part(const Expr& x, const std::vector<Expr>& starts, const Dims& sizes);
Expr with_part(const Expr& x, const Expr& update, const std::vector<Expr>& starts);
Expr s64(const Expr& like, int64_t v);             // 0-d
Expr padded(const Expr& x, int64_t m, int64_t n);  // with zeros, at the ends

// X with A X = B (X A = B with `left` false). Only the triangle of A is read.
Expr solve_triangular(const Expr& a, const Expr& b, Triangle triangle, bool left = true);

}  // namespace tpupilot::ops
