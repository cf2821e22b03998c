// LU with partial pivoting: A = P L U, as LAPACK's getrf gives it.
#pragma once

#include "ops/matrices.h"

namespace tpupilot::ops {

struct Lu {
  Expr factors;  // [batch, m, n]: U, and L below the diagonal
  Expr pivots;   // [batch, min(m, n)], S32, from 1: row i was swapped with row pivots[i]
  Expr info;     // [batch], S32: 0, or the number of the first zero pivot, from 1
};

Lu factored(const Expr& a);

// [batch, m], S64: the row that stands at each place after all swaps; with `inverse`, the place where each row went.
Expr row_order(const Expr& pivots, int64_t m, bool inverse);
Expr take_rows(const Expr& x, const Expr& order);              // [batch, m, n] at [batch, m]
Expr permutation_matrix(const Expr& like, const Expr& order);  // P of A = P L U, in the element type of `like`

// X with A X = B, or A^H X = B; X A = B, or X A^H = B with `left` false.
Expr solve_with_lu(const Expr& factors, const Expr& pivots, const Expr& b, bool left, bool of_adjoint);

}  // namespace tpupilot::ops
