// Element-wise functions of one tensor. Computed in the opmath type of the result; integer arguments of float functions
// are converted first, as ATen promotes them.
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "ops/complex.h"
#include "ops/promote.h"

namespace tpupilot::ops {
namespace {

Row formula(std::vector<std::string_view> overloads, Expr (*f)(Context&)) {
  return {.overloads = std::move(overloads), .emit = [f](Context& c) { return Values{f(c)}; }};
}

Row named(std::string_view overload, std::string_view op) {
  return {.overloads = {overload}, .emit = [op](Context& c) { return Values{ops::apply(op, operand(c, "self"))}; }};
}
// The same with a function of its own for complex numbers.
Row named(std::string_view overload, std::string_view op, Expr (*of_complex)(const Expr&)) {
  return {.overloads = {overload}, .emit = [op, of_complex](Context& c) {
            const Expr x = operand(c, "self");
            return Values{hlo::is_complex(x.v.elem()) ? of_complex(x) : ops::apply(op, x)};
          }};
}

// Integers are their own floor, ceiling and truncation.
Row rounding(std::string_view overload, std::string_view op) {
  return {.overloads = {overload}, .emit = [op](Context& c) {
            const Expr x = operand(c, "self");
            return Values{hlo::is_float(x.v.elem()) ? ops::apply(op, x) : x};
          }};
}

Expr self(Context& c) { return operand(c, "self"); }
// The largest finite number of a float type, times `sign`; 0-d.
Value largest(Builder& b, Elem elem, double sign) {
  double v = std::numeric_limits<double>::max();
  if (elem == Elem::F32) v = std::numeric_limits<float>::max();
  if (elem == Elem::BF16) v = std::ldexp(255.0, 120);
  if (elem == Elem::F16) v = 65504;
  return b.constant(sign * v, {elem, {}});
}
// The argument itself, in its own type: for functions whose result is of another one.
Expr raw(Context& c) { return expr(c, c.tensor("self")); }

Expr truncated(const Expr& x) { return where(x < 0, apply("stablehlo.ceil", x), apply("stablehlo.floor", x)); }

Expr trunc(Context& c) {
  const Expr x = self(c);
  return hlo::is_float(x.v.elem()) ? truncated(x) : x;
}
Expr frac(Context& c) { return self(c) - truncated(self(c)); }

Expr round_decimals(Context& c) {
  Expr x = self(c);
  if (!hlo::is_float(x.v.elem())) return x;
  const int64_t decimals = c.integer("decimals");
  const double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  const Expr scaled = decimals < 0 ? x / scale : x * scale;
  const Expr rounded = apply("stablehlo.round_nearest_even", scaled);
  return decimals < 0 ? rounded * scale : rounded / scale;
}

Expr absolute(Context& c) {
  const Expr x = raw(c);
  if (hlo::is_complex(x.v.elem())) return complex_abs(x);
  return hlo::is_unsigned(x.v.elem()) || x.v.elem() == Elem::Pred ? x : abs(self(c));
}

Expr sign(Context& c) {
  Expr x = self(c);
  if (x.v.elem() == Elem::Pred) return x;
  const Expr positive = where(x > 0, number(x, 1), number(x, 0));  // NaN has no sign: 0, as ATen's
  return hlo::is_unsigned(x.v.elem()) ? positive : where(x < 0, number(x, -1), positive);
}

Expr sgn(Context& c) {
  const Expr x = self(c);
  return hlo::is_complex(x.v.elem()) ? complex_sgn(x) : sign(c);
}

Expr reciprocal(Context& c) {
  const Expr x = self(c);
  return hlo::is_complex(x.v.elem()) ? complex_reciprocal(x) : number(x, 1) / x;
}
Expr log1p_of(Context& c) {
  const Expr x = self(c);
  return hlo::is_complex(x.v.elem()) ? complex_log1p(x) : log1p(x);
}
// A logarithm to another base. Complex ones are divided part by part: (-inf, 0) times a complex number has NaN in it.
Expr log_to_base(const Expr& x, double ln_base) {
  return hlo::is_complex(x.v.elem()) ? scaled(complex_log(x), 1 / ln_base) : log(x) * (1 / ln_base);
}
Expr log2(Context& c) { return log_to_base(self(c), std::numbers::ln2); }
Expr log10(Context& c) { return log_to_base(self(c), std::numbers::ln10); }
Expr exp2(Context& c) {
  const Expr x = self(c);
  return hlo::is_complex(x.v.elem()) ? complex_exp2(x) : apply("stablehlo.power", number(x, 2), x);
}

Expr atan(Context& c) {
  const Expr x = self(c);
  if (hlo::is_complex(x.v.elem())) return complex_atan(x);
  return x.b->target().constant_atan2_is_wrong ? atan2(x, number(x, 1)) : apply("chlo.atan", x);
}

Expr bitwise_not(Context& c) { return !raw(c); }
Expr logical_not(Context& c) { return !Expr{&c.b, convert_like_aten(c.b, c.tensor("self"), Elem::Pred)}; }

Expr infinite(Context& c, double infinity) {
  const Expr x = raw(c);
  if (!hlo::is_float(x.v.elem())) return {&c.b, c.b.zeros({Elem::Pred, x.v.dims()})};
  return equal(x, infinity);
}
Expr isposinf(Context& c) { return infinite(c, std::numeric_limits<double>::infinity()); }
Expr isneginf(Context& c) { return infinite(c, -std::numeric_limits<double>::infinity()); }

Expr isnan(Context& c) {
  const Expr x = raw(c);
  if (!hlo::is_complex(x.v.elem())) return {&c.b, c.b.is_nan(x)};
  return Expr{&c.b, c.b.is_nan(real(x))} | Expr{&c.b, c.b.is_nan(imag(x))};
}

Expr conjugate(Context& c) {
  Expr x = raw(c);
  return hlo::is_complex(x.v.elem()) ? conj(x) : x;
}

// ---- numbers taken apart ----
Expr signbit(Context& c) {
  const Expr x = raw(c);
  const Elem elem = x.v.elem();
  if (elem == Elem::Pred || hlo::is_unsigned(elem)) return {&c.b, c.b.zeros({Elem::Pred, x.v.dims()})};
  return sign_is_set(hlo::is_float(elem) ? convert(x, hlo::compute_elem(elem)) : x);
}

// The angle of a real number is 0 or pi; that of NaN is NaN.
Expr angle(Context& c) {
  const Expr x = raw(c);
  if (hlo::is_complex(x.v.elem())) {
    return atan2(imag(x), real(x));
  }
  const Expr y = self(c);
  const Expr turned = where(y < 0, number(y, std::numbers::pi), number(y, 0));
  return where(Expr{&c.b, c.b.is_nan(y)}, y, turned);
}

Expr nan_to_num(Context& c, const Expr& x, Elem stored) {
  if (!hlo::is_float(x.v.elem())) return x;
  const auto replacement = [&](std::string_view name, const Value& otherwise) {
    const Value v = c.given(name) ? c.b.convert(c.scalar(name, x.v.elem()), stored) : otherwise;
    return Expr{&c.b, c.b.convert(v, x.v.elem())};
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Expr nan = replacement("nan", c.b.zeros({stored, {}}));
  const Expr top = replacement("posinf", largest(c.b, stored, 1)),
             bottom = replacement("neginf", largest(c.b, stored, -1));
  const Expr finite = where(equal(x, kInfinity), broadcast(top, x.v.dims()),
                            where(equal(x, -kInfinity), broadcast(bottom, x.v.dims()), x));
  return where(Expr{&c.b, c.b.is_nan(x)}, broadcast(nan, x.v.dims()), finite);
}
Expr nan_to_num_of(Context& c) {
  const Expr x = self(c);
  if (!hlo::is_complex(x.v.elem())) return nan_to_num(c, x, c.result().elem);
  const Elem part = hlo::real_of(x.v.elem());
  return complex(nan_to_num(c, real(x), part), nan_to_num(c, imag(x), part));
}

// x = mantissa * 2^exponent with a mantissa in [0.5, 1). On bits alone: plugins take subnormal numbers for zero.
Values frexp(Context& c) {
  const Elem wide = hlo::compute_elem(c.tensor("self").elem());
  const Expr x = convert(raw(c), wide);
  const bool f64 = wide == Elem::F64;
  const int64_t width = f64 ? 64 : 32, fraction = f64 ? 52 : 23, bias = f64 ? 1022 : 126, field = f64 ? 0x7ff : 0xff;
  const Expr pattern{&c.b, c.b.bitcast(x, {f64 ? Elem::S64 : Elem::S32, x.v.dims()})};
  const auto integer = [&](int64_t v) { return Expr{&c.b, c.b.constant_int(v, pattern.v.type)}; };
  const Expr fraction_mask = integer((int64_t{1} << fraction) - 1);
  const Expr bits = pattern & fraction_mask;
  const Expr exponent = apply("stablehlo.shift_right_logical", pattern, integer(fraction)) & integer(field);
  // A subnormal number's leading bit moves up to where the implied one of normal numbers is.
  const Expr up = apply("stablehlo.count_leading_zeros", bits) - integer(width - 1 - fraction);
  const Expr subnormal = equal(exponent, 0) & !equal(bits, 0);
  const Expr normalized = apply("stablehlo.shift_left", bits, where(subnormal, up, 0)) & fraction_mask;
  const Expr sign = pattern & integer(f64 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min());
  const Expr mantissa{&c.b, c.b.bitcast(sign | normalized | integer(bias << fraction), x.v.type)};
  const Expr power = where(subnormal, integer(1) - up, exponent) - integer(bias);
  const Expr zero = equal(exponent, 0) & equal(bits, 0);
  const Expr unchanged = zero | equal(exponent, integer(field));  // or infinite, or NaN
  return {where(unchanged, x, mantissa), where(unchanged, 0, power)};
}

// ---- special functions ----
Expr logit(Context& c) {
  Expr x = self(c);
  if (c.given("eps")) {
    const Expr eps = wide_scalar(c, "eps");
    x = where(x < eps, broadcast(eps, x.v.dims()), where(x > 1 - eps, broadcast(1 - eps, x.v.dims()), x));
  }
  return log(x / (1 - x));
}
Expr sinc(Context& c) {
  const Expr x = self(c), y = x * std::numbers::pi;
  if (hlo::is_complex(x.v.elem())) return where(equal(x, 0), 1, complex_divide(complex_sin(y), y));
  return where(equal(x, 0), 1, apply("stablehlo.sine", y) / y);
}
// -x log(x): 0 at 0, -infinity below.
Expr entr(Context& c) {
  const Expr x = self(c);
  const Expr below = where(equal(x, 0), number(x, 0), number(x, -std::numeric_limits<double>::infinity()));
  return where(Expr{&c.b, c.b.is_nan(x)}, x, where(x > 0, -x * log(x), below));
}
// ATen's poles at zero are infinities of the other sign, those at negative integers are NaN.
Expr digamma(Context& c) {
  const Expr x = self(c);
  const Expr pole = where(sign_is_set(x), number(x, std::numeric_limits<double>::infinity()),
                          number(x, -std::numeric_limits<double>::infinity()));
  return where(equal(x, 0), pole, apply("chlo.digamma", x));
}
// The n-th derivative of cot(pi x) as a polynomial in cot(pi x), times (-pi)^n: coefficients, lowest first.
std::vector<double> cotangent_derivative(int64_t n) {
  std::vector<double> p = {0, 1};
  for (int64_t k = 0; k < n; ++k) {  // (1 + c^2) p'(c)
    std::vector<double> next(p.size() + 1, 0.0);
    for (size_t i = 1; i < p.size(); ++i) {
      next[i - 1] += static_cast<double>(i) * p[i];
      next[i + 1] += static_cast<double>(i) * p[i];
    }
    p = std::move(next);
  }
  return p;
}

// The plugins' op is wrong for negative arguments. Those are reflected (DLMF 5.15.6):
// (-1)^n psi_n(1 - x) - psi_n(x) = pi d^n/dx^n cot(pi x).
Expr polygamma(Context& c) {
  const int64_t n = c.integer("n");
  if (n == 0) return digamma(c);
  const Expr x = self(c), negative = x < 0;
  const Expr value = apply("chlo.polygamma", number(x, static_cast<double>(n)), where(negative, 1 - x, x));
  const Expr turn = (x - apply("stablehlo.round_nearest_even", x)) * std::numbers::pi;
  const Expr cotangent = apply("stablehlo.cosine", turn) / apply("stablehlo.sine", turn);
  const std::vector<double> p = cotangent_derivative(n);
  Expr derivative = number(x, p.back());
  for (size_t i = p.size() - 1; i-- > 0;) derivative = derivative * cotangent + p[i];
  const double scale = std::numbers::pi * std::pow(-std::numbers::pi, static_cast<double>(n));
  const Expr reflected = (n % 2 == 0 ? value : -value) - derivative * scale;
  // At 0 the plugins' op gives NaN for even n.
  const double pole = std::numeric_limits<double>::infinity() * (n % 2 == 0 ? -1 : 1);
  return where(equal(x, 0), pole, where(negative, reflected, value));
}

Expr negate(Context& c) { return -self(c); }

}  // namespace

std::vector<Row> unary_rows() {
  return {
      formula({"neg.out"}, negate),
      named("exp.out", "stablehlo.exponential", complex_exp),
      named("expm1.out", "stablehlo.exponential_minus_one", complex_expm1),
      named("log.out", "stablehlo.log", complex_log),
      formula({"log1p.out"}, log1p_of),
      formula({"log2.out"}, log2),
      formula({"log10.out"}, log10),
      formula({"exp2.out"}, exp2),
      named("sqrt.out", "stablehlo.sqrt", complex_sqrt),
      named("rsqrt.out", "stablehlo.rsqrt", complex_rsqrt),
      formula({"reciprocal.out"}, reciprocal),
      named("sin.out", "stablehlo.sine", complex_sin),
      named("cos.out", "stablehlo.cosine", complex_cos),
      named("tan.out", "stablehlo.tan", complex_tan),
      named("asin.out", "chlo.asin", complex_asin),
      named("acos.out", "chlo.acos", complex_acos),
      formula({"atan.out"}, atan),
      named("sinh.out", "chlo.sinh", complex_sinh),
      named("cosh.out", "chlo.cosh", complex_cosh),
      named("tanh.out", "stablehlo.tanh", complex_tanh),
      named("asinh.out", "chlo.asinh", complex_asinh),
      named("acosh.out", "chlo.acosh", complex_acosh),
      named("atanh.out", "chlo.atanh", complex_atanh),
      named("sigmoid.out", "stablehlo.logistic", complex_sigmoid),
      named("erf.out", "chlo.erf"),
      named("erfc.out", "chlo.erfc"),
      named("erfinv.out", "chlo.erf_inv"),
      named("lgamma.out", "chlo.lgamma"),
      formula({"digamma.out"}, digamma),
      formula({"polygamma.out"}, polygamma),
      formula({"special_entr.out"}, entr),
      formula({"sinc.out"}, sinc),
      formula({"logit", "logit.out"}, logit),
      formula({"angle", "angle.out"}, angle),
      formula({"signbit.out"}, signbit),
      formula({"nan_to_num.out"}, nan_to_num_of),
      {.overloads = {"frexp.Tensor_out"}, .emit = frexp},
      rounding("ceil.out", "stablehlo.ceil"),
      rounding("floor.out", "stablehlo.floor"),
      rounding("round.out", "stablehlo.round_nearest_even"),
      formula({"round.decimals_out"}, round_decimals),
      formula({"trunc.out"}, trunc),
      formula({"frac.out"}, frac),
      formula({"abs.out"}, absolute),
      formula({"sign.out"}, sign),
      formula({"sgn.out"}, sgn),
      formula({"bitwise_not.out"}, bitwise_not),
      formula({"logical_not.out"}, logical_not),
      formula({"isposinf.out"}, isposinf),
      formula({"isneginf.out"}, isneginf),
      formula({"isnan"}, isnan),
      formula({"conj_physical.out", "conj_physical_"}, conjugate),
  };
}

}  // namespace tpupilot::ops
