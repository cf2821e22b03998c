// Cubic convolution (Keys 1981) with a = -0.75: the weights of the elements at -1, 0, 1 and 2 for a place t of the way
// from element 0 to element 1, and their derivatives by t.
#pragma once

#include <array>

#include "ops/expr.h"

namespace tpupilot::ops {

// |u| <= 1 and 1 <= |u| <= 2 from the place; `a` is -0.75 for upsampling and grids, -0.5 for antialiased filters.
inline Expr cubic_near(const Expr& u, double a) { return ((a + 2) * u - (a + 3)) * u * u + 1; }
inline Expr cubic_far(const Expr& u, double a) { return ((a * u - 5 * a) * u + 8 * a) * u - 4 * a; }

constexpr double kCubic = -0.75;

inline std::array<Expr, 4> cubic_weights(const Expr& t) {
  return {cubic_far(t + 1, kCubic), cubic_near(t, kCubic), cubic_near(1 - t, kCubic), cubic_far(2 - t, kCubic)};
}

inline std::array<Expr, 4> cubic_slopes(const Expr& t) {
  constexpr double a = kCubic;
  const auto near = [](const Expr& u) { return (3 * (a + 2) * u - 2 * (a + 3)) * u; };
  const auto far = [](const Expr& u) { return (3 * a * u - 10 * a) * u + 8 * a; };
  return {far(t + 1), near(t), -near(1 - t), -far(2 - t)};
}

}  // namespace tpupilot::ops
