// Formulas written as formulas: values of one Builder with C++ operators. Plain numbers take the element type of their
// partner, and a 0-d operand is broadcast to the other's shape; anything else that does not fit is an hlo::Error.
#pragma once

#include <limits>

#include "ops/row.h"

namespace tpupilot::ops {

struct Expr {
  Builder* b = nullptr;
  Value v;

  operator const Value&() const { return v; }
};

inline Expr expr(Context& c, Value v) { return {&c.b, std::move(v)}; }

// The argument in the opmath type of the call's first result (f32 for f16 and bf16).
Expr wide(Context& c, std::string_view tensor);
// The same, broadcast to the first result's shape.
Expr wide_like_result(Context& c, std::string_view tensor);
// A Scalar or float argument in that type; 0-d.
Expr wide_scalar(Context& c, std::string_view scalar);
Elem result_opmath(Context& c);

Expr number(const Expr& like, double v);  // `v` in the type and shape of `like`
Expr apply(std::string_view op, const Expr& x);
Expr apply(std::string_view op, const Expr& x, const Expr& y);
Expr compare(hlo::Direction d, const Expr& x, const Expr& y);

inline Expr operator+(const Expr& x, const Expr& y) { return apply("stablehlo.add", x, y); }
inline Expr operator-(const Expr& x, const Expr& y) { return apply("stablehlo.subtract", x, y); }
inline Expr operator*(const Expr& x, const Expr& y) { return apply("stablehlo.multiply", x, y); }
inline Expr operator/(const Expr& x, const Expr& y) { return apply("stablehlo.divide", x, y); }
inline Expr operator+(const Expr& x, double y) { return x + number(x, y); }
inline Expr operator-(const Expr& x, double y) { return x - number(x, y); }
inline Expr operator*(const Expr& x, double y) { return x * number(x, y); }
inline Expr operator/(const Expr& x, double y) { return x / number(x, y); }
inline Expr operator+(double x, const Expr& y) { return number(y, x) + y; }
inline Expr operator-(double x, const Expr& y) { return number(y, x) - y; }
inline Expr operator*(double x, const Expr& y) { return number(y, x) * y; }
inline Expr operator/(double x, const Expr& y) { return number(y, x) / y; }
inline Expr operator-(const Expr& x) { return apply("stablehlo.negate", x); }

// Comparisons give Pred; a comparison with NaN is false, but for !=.
inline Expr operator<(const Expr& x, const Expr& y) { return compare(hlo::Direction::LT, x, y); }
inline Expr operator<=(const Expr& x, const Expr& y) { return compare(hlo::Direction::LE, x, y); }
inline Expr operator>(const Expr& x, const Expr& y) { return compare(hlo::Direction::GT, x, y); }
inline Expr operator>=(const Expr& x, const Expr& y) { return compare(hlo::Direction::GE, x, y); }
inline Expr operator<(const Expr& x, double y) { return x < number(x, y); }
inline Expr operator<=(const Expr& x, double y) { return x <= number(x, y); }
inline Expr operator>(const Expr& x, double y) { return x > number(x, y); }
inline Expr operator>=(const Expr& x, double y) { return x >= number(x, y); }
inline Expr equal(const Expr& x, const Expr& y) { return compare(hlo::Direction::EQ, x, y); }
inline Expr equal(const Expr& x, double y) { return equal(x, number(x, y)); }
inline Expr operator&(const Expr& x, const Expr& y) { return apply("stablehlo.and", x, y); }
inline Expr operator|(const Expr& x, const Expr& y) { return apply("stablehlo.or", x, y); }
inline Expr operator!(const Expr& x) { return apply("stablehlo.not", x); }

Expr where(const Expr& pred, const Expr& on_true, const Expr& on_false);
inline Expr where(const Expr& pred, const Expr& on_true, double on_false) {
  return where(pred, on_true, number(on_true, on_false));
}
inline Expr where(const Expr& pred, double on_true, const Expr& on_false) {
  return where(pred, number(on_false, on_true), on_false);
}

inline Expr exp(const Expr& x) { return apply("stablehlo.exponential", x); }
inline Expr expm1(const Expr& x) { return apply("stablehlo.exponential_minus_one", x); }
inline Expr log(const Expr& x) { return apply("stablehlo.log", x); }
Expr log1p(const Expr& x);
inline Expr tanh(const Expr& x) { return apply("stablehlo.tanh", x); }
inline Expr sqrt(const Expr& x) { return apply("stablehlo.sqrt", x); }
inline Expr abs(const Expr& x) { return apply("stablehlo.abs", x); }
inline Expr erf(const Expr& x) { return apply("chlo.erf", x); }
inline Expr logistic(const Expr& x) { return apply("stablehlo.logistic", x); }
inline Expr maximum(const Expr& x, const Expr& y) { return apply("stablehlo.maximum", x, y); }  // NaN wins
inline Expr maximum(const Expr& x, double y) { return maximum(x, number(x, y)); }
inline Expr minimum(const Expr& x, const Expr& y) { return apply("stablehlo.minimum", x, y); }
inline Expr minimum(const Expr& x, double y) { return minimum(x, number(x, y)); }

Expr atan2(const Expr& y, const Expr& x);  // of y / x, in the quadrant of (x, y)

Expr sign_is_set(const Expr& x);  // Pred; of -0 and negative NaN too

inline Expr convert(const Expr& x, Elem elem) { return {x.b, x.b->convert(x, elem)}; }
inline Expr broadcast(const Expr& x, const Dims& dims) { return {x.b, x.b->broadcast(x, dims)}; }
inline Expr reshape(const Expr& x, const Dims& dims) { return {x.b, x.b->reshape(x, dims)}; }
// A vector along `dim`, broadcast to `dims`.
Expr along(const Expr& vector, int64_t dim, const Dims& dims);
inline Expr sum(const Expr& x, const Dims& dims) { return {x.b, x.b->sum(x, dims)}; }
// [rows, n] -> [rows]. On the CPU plugins a product with ones: faster than a reduction, which would compute its operand
// element by element.
Expr row_sums(const Expr& x);
// Reduced over `dims`, and back at the shape of x.
Expr sum_like(const Expr& x, const Dims& dims);
Expr amax_like(const Expr& x, const Dims& dims);

}  // namespace tpupilot::ops
