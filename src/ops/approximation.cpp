#include "ops/approximation.h"

#include <cmath>
#include <limits>

#include "ops/promote.h"

namespace tpupilot::ops {

Expr horner(const Expr& x, Coefficients c) {
  Expr sum = number(x, c.front());
  for (const double next : c.subspan(1)) sum = sum * x + next;
  return sum;
}

Expr chebyshev(const Expr& y, Coefficients c) {
  if (y.v.elem() != Elem::F64) {
    const double least = std::abs(c.back()) * std::numeric_limits<float>::epsilon() / 16;
    while (c.size() > 2 && std::abs(c.front()) < least) c = c.subspan(1);
  }
  Expr before = number(y, 0), previous = before, sum = number(y, c.front());
  for (const double next : c.subspan(1)) {
    before = previous;
    previous = sum;
    sum = y * previous - before + next;
  }
  return (sum - before) * 0.5;
}

Row function_of_one(std::vector<std::string_view> overloads, Expr (*f)(const Expr&)) {
  return {.overloads = std::move(overloads),
          .emit = [f](Context& c) { return Values{f(operand(c, c.has_argument("self") ? "self" : "x"))}; }};
}

}  // namespace tpupilot::ops
