// Approximations given by tables of coefficients, all with the highest degree first.
#pragma once

#include <span>

#include "ops/expr.h"

namespace tpupilot::ops {

using Coefficients = std::span<const double>;

// The polynomial at x, by Horner's rule.
Expr horner(const Expr& x, Coefficients c);
// c[n-1] / 2 + c[n-2] T_1(y / 2) + c[n-3] T_2(y / 2) + ... for y from -2 to 2, by Clenshaw's recurrence. Terms that the
// element type of y cannot see are left out.
Expr chebyshev(const Expr& y, Coefficients c);

// A function of one tensor, "self" or "x" in the schema, computed in the opmath type of the result.
Row function_of_one(std::vector<std::string_view> overloads, Expr (*f)(const Expr&));

}  // namespace tpupilot::ops
