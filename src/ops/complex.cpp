#include "ops/complex.h"

#include <limits>
#include <numbers>

namespace tpupilot::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kHalfPi = std::numbers::pi / 2;

Expr nan(const Expr& x) { return {x.b, x.b->is_nan(x)}; }
Expr infinite(const Expr& x) { return equal(abs(x), kInfinity); }
Expr finite(const Expr& x) { return abs(x) < kInfinity; }
Expr with_sign_of(const Expr& magnitude, const Expr& sign) {
  const Expr x = abs(magnitude);
  return where(sign_is_set(sign), -x, x);
}
Expr times_i(const Expr& x) { return complex(-imag(x), real(x)); }
Expr over_i(const Expr& x) { return complex(imag(x), -real(x)); }

// f(|re| + i |im|) for the functions that are determined by their first quadrant: the plugins' own ops do not look at
// the sign of a zero.
Expr of_first_quadrant(std::string_view op, const Expr& x) {
  return ops::apply(op, complex(abs(real(x)), abs(imag(x))));
}

// For odd functions with f(conj(x)) = conj(f(x)).
Expr odd(const Expr& quadrant, const Expr& x) {
  return complex(with_sign_of(real(quadrant), real(x)), with_sign_of(imag(quadrant), imag(x)));
}

// f(x) y for a hyperbolic function f. Where it is half of exp(|x|), the product may be finite though f(x) is not.
Expr hyperbolic_times(std::string_view f, const Expr& x, const Expr& y) {
  const Expr root = exp(abs(x) * 0.5), large = root * 0.5 * y * root;
  const Expr signed_large = f == "chlo.sinh" ? where(x < 0, -large, large) : large;
  return where(abs(x) > 20, signed_large, ops::apply(f, x) * y);
}

// The imaginary part of asin and acos knows nothing beside a NaN, unless the other part is infinite.
Expr unknown_beside_nan(const Expr& x, const Expr& part) {
  const Expr re = real(x), im = imag(x);
  return where((nan(re) & finite(im)) | (nan(im) & finite(re) & !equal(re, 0)), kNaN, part);
}

// C's product (Annex G.5.1): an infinite operand makes an infinite product, where the plain formula would have NaN.
Expr product(const Expr& x, const Expr& y) {
  const Expr plain = x * y;
  Expr a = real(x), b = imag(x), c = real(y), d = imag(y);
  const auto known = [](const Expr& part) { return where(nan(part), with_sign_of(number(part, 0), part), part); };
  const auto boxed = [&known](const Expr& when, Expr& re, Expr& im, Expr& other_re, Expr& other_im) {
    re = where(when, with_sign_of(where(infinite(re), number(re, 1), number(re, 0)), re), re);
    im = where(when, with_sign_of(where(infinite(im), number(im, 1), number(im, 0)), im), im);
    other_re = where(when, known(other_re), other_re);
    other_im = where(when, known(other_im), other_im);
  };
  const Expr x_infinite = infinite(a) | infinite(b), y_infinite = infinite(c) | infinite(d);
  boxed(x_infinite, a, b, c, d);
  boxed(y_infinite, c, d, a, b);
  const Expr recovered = complex((a * c - b * d) * kInfinity, (a * d + b * c) * kInfinity);
  return where(nan(real(plain)) & nan(imag(plain)) & (x_infinite | y_infinite), recovered, plain);
}

// The real and imaginary sides change places: f(x) = g(i x) / i.
Expr turned(const Expr& x, Expr (*g)(const Expr&)) { return over_i(g(times_i(x))); }

}  // namespace

Expr complex_abs(const Expr& x) { return where(infinite(real(x)) | infinite(imag(x)), kInfinity, abs(x)); }

Expr complex_exp(const Expr& x) {
  const Expr re = real(x), im = imag(x), y = exp(x);
  const Expr limit = infinite(re) & !finite(im), up = re > 0;
  return complex(where(limit, where(up, number(re, kInfinity), number(re, 0)), real(y)),
                 where(limit, where(up, number(re, kNaN), number(re, 0)), imag(y)));
}

// c10's own formula.
Expr complex_expm1(const Expr& x) {
  const Expr re = real(x), im = imag(x), half = apply("stablehlo.sine", im * 0.5);
  return complex(expm1(re) * apply("stablehlo.cosine", im) - half * half * 2, exp(re) * apply("stablehlo.sine", im));
}

Expr complex_exp2(const Expr& x) { return complex_exp(scaled(x, std::numbers::ln2)); }

Expr complex_log(const Expr& x) {
  const Expr y = log(x);
  return complex(where(infinite(real(x)) | infinite(imag(x)), kInfinity, real(y)), atan2(imag(x), real(x)));
}

// Near 0 by |1 + x|^2 - 1, which does not round 1 + x.
Expr complex_log1p(const Expr& x) {
  const Expr re = real(x), im = imag(x);
  const Expr outer = complex(re + 1, im);
  const Expr inner = log1p(re * (re + 2) + im * im) * 0.5;
  return complex(where(complex_abs(x) < 0.5, inner, real(complex_log(outer))), atan2(im, re + 1));
}

Expr complex_sqrt(const Expr& x) {
  const Expr re = real(x), im = imag(x), y = of_first_quadrant("stablehlo.sqrt", x);
  // The root of -a + bi is that of a + bi with its parts changed.
  const Expr negative = sign_is_set(re) & !nan(re);
  const Expr along = where(infinite(re) | infinite(im), kInfinity, real(y));  // on the larger side
  const Expr across = where(infinite(im), kInfinity, where(infinite(re) & nan(im), kNaN, imag(y)));
  const Expr root_re = where(negative, across, along), root_im = where(negative, along, across);
  return complex(root_re, with_sign_of(root_im, im));
}

Expr complex_reciprocal(const Expr& x) { return complex_divide(number(x, 1), x); }
Expr complex_rsqrt(const Expr& x) { return complex_reciprocal(complex_sqrt(x)); }
Expr complex_sigmoid(const Expr& x) { return complex_reciprocal(complex_exp(-x) + 1); }

Expr complex_sgn(const Expr& x) {
  const Expr length = complex_abs(x), divisor = where(equal(length, 0), 1, length);
  return complex(real(x) / divisor, imag(x) / divisor);
}

Expr complex_sinh(const Expr& x) {
  const Expr re = real(x), im = imag(x);
  const Expr y_re = where(equal(re, 0), re, hyperbolic_times("chlo.sinh", re, apply("stablehlo.cosine", im)));
  const Expr y_im = where(equal(im, 0), im, hyperbolic_times("chlo.cosh", re, apply("stablehlo.sine", im)));
  return complex(where(infinite(re) & !finite(im), kInfinity, y_re), y_im);
}

Expr complex_cosh(const Expr& x) {
  const Expr re = real(x), im = imag(x);
  const Expr y_re = hyperbolic_times("chlo.cosh", re, apply("stablehlo.cosine", im));
  const Expr y_im = hyperbolic_times("chlo.sinh", re, apply("stablehlo.sine", im));
  const Expr zero = where(sign_is_set(re), with_sign_of(number(re, 0), -im), with_sign_of(number(re, 0), im));
  return complex(where(infinite(re) & !finite(im), kInfinity, y_re), where(equal(re, 0) | equal(im, 0), zero, y_im));
}

Expr complex_sin(const Expr& x) { return turned(x, complex_sinh); }
Expr complex_cos(const Expr& x) { return complex_cosh(times_i(x)); }
Expr complex_tan(const Expr& x) { return turned(x, complex_tanh); }

Expr complex_tanh(const Expr& x) {
  const Expr re = real(x), y = tanh(x);
  return complex(where(equal(re, 0) & !finite(imag(x)), re, real(y)), imag(y));
}

Expr complex_asin(const Expr& x) {
  const Expr y = of_first_quadrant("chlo.asin", x);
  return odd(complex(where(equal(real(x), 0), 0, real(y)), unknown_beside_nan(x, imag(y))), x);
}

// acos(-x) = pi - acos(x), acos(conj(x)) = conj(acos(x)).
Expr complex_acos(const Expr& x) {
  const Expr re = real(x), y = of_first_quadrant("chlo.acos", x);
  const Expr first = where(equal(re, 0), kHalfPi, real(y));
  return complex(where(sign_is_set(re), std::numbers::pi - first, first),
                 with_sign_of(unknown_beside_nan(x, imag(y)), -imag(x)));
}

Expr complex_acosh(const Expr& x) {
  const Expr y = complex_acos(x);
  return complex(abs(imag(y)), with_sign_of(real(y), imag(x)));
}

Expr complex_asinh(const Expr& x) { return turned(x, complex_asin); }

Expr complex_atanh(const Expr& x) {
  const Expr re = abs(real(x)), im = abs(imag(x)), y = of_first_quadrant("chlo.atanh", x);
  // Beside the poles the plugins' op squares the distance, which underflows.
  const Expr beside = (log(im * im + 4) * 0.5 - log(im)) * 0.5;
  const Expr zero = equal(re, 0), undefined = nan(im) | (nan(re) & finite(im));
  const Expr y_re = where(zero, 0, where(equal(re, 1) & (im < 1), beside, real(y)));
  return odd(complex(y_re, where(undefined, kNaN, imag(y))), x);
}

Expr complex_atan(const Expr& x) { return turned(x, complex_atanh); }

// By the quotient of the divisor's smaller part and its larger one, as c10 has it: no square overflows.
Expr complex_divide(const Expr& x, const Expr& y) {
  const Expr a = real(x), b = imag(x), c = real(y), d = imag(y);
  const Expr by_real = abs(c) >= abs(d), zero = equal(c, 0) & equal(d, 0);
  const Expr large = where(by_real, c, d), small = where(by_real, d, c);
  const Expr ratio = small / large, divisor = large + small * ratio;
  const Expr re = where(by_real, a + b * ratio, a * ratio + b) / divisor;
  const Expr im = where(by_real, b - a * ratio, b * ratio - a) / divisor;
  return complex(where(zero, a / abs(c), re), where(zero, b / abs(d), im));
}

Expr complex_power(const Expr& x, const Expr& y) { return complex_exp(product(y, complex_log(x))); }

Expr complex_logaddexp(const Expr& x, const Expr& y) {
  const Expr y_larger = real(x) < real(y);
  const Expr small = where(y_larger, x, y), large = where(y_larger, y, x);
  const Expr re = real(small), same = infinite(re) & equal(re, real(large));
  const Expr ordinary = complex_log1p(complex_exp(small - large)) + large;
  const Expr unbounded = complex_log(complex_exp(small) + complex_exp(large));
  const Expr nothing = complex(number(re, -kInfinity), number(re, 0));
  const Expr value = where(same, where(re < 0, nothing, unbounded), where(equal(re, -kInfinity), large, ordinary));
  const Expr unknown = nan(real(x)) | nan(imag(x)) | nan(real(y)) | nan(imag(y));
  const Expr none = complex(number(re, kNaN), number(re, kNaN));
  return where(unknown, none, value);
}

}  // namespace tpupilot::ops
