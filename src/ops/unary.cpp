// Element-wise functions of one tensor. Computed in the opmath type of the result; integer arguments of float functions are
// converted first, as ATen promotes them.
#include <cmath>
#include <numbers>

#include "ops/promote.h"

namespace tpupilot::ops {
namespace {

Row formula(std::vector<std::string_view> overloads, Expr (*f)(Context&)) {
  return {.overloads = std::move(overloads), .emit = [f](Context& c) { return Values{f(c)}; }};
}

Row named(std::string_view overload, std::string_view op) {
  return {.overloads = {overload}, .emit = [op](Context& c) { return Values{ops::apply(op, operand(c, "self"))}; }};
}

// Integers are their own floor, ceiling and truncation.
Row rounding(std::string_view overload, std::string_view op) {
  return {.overloads = {overload}, .emit = [op](Context& c) {
            const Expr x = operand(c, "self");
            return Values{hlo::is_float(x.v.elem()) ? ops::apply(op, x) : x};
          }};
}

Expr self(Context& c) { return operand(c, "self"); }
// The argument itself, in its own type: for functions whose result is of another one.
Expr raw(Context& c) { return expr(c, c.tensor("self")); }

Expr truncated(const Expr& x) { return where(x < 0, apply("stablehlo.ceil", x), apply("stablehlo.floor", x)); }

Expr trunc(Context& c) {
  const Expr x = self(c);
  return hlo::is_float(x.v.elem()) ? truncated(x) : x;
}
Expr frac(Context& c) { return self(c) - truncated(self(c)); }

Expr round_decimals(Context& c) {
  const Expr x = self(c);
  if (!hlo::is_float(x.v.elem())) return x;
  const int64_t decimals = c.integer("decimals");
  const double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  const Expr scaled = decimals < 0 ? x / scale : x * scale;
  const Expr rounded = apply("stablehlo.round_nearest_even", scaled);
  return decimals < 0 ? rounded * scale : rounded / scale;
}

Expr absolute(Context& c) {
  const Expr x = raw(c);
  if (hlo::is_complex(x.v.elem())) return abs(x);
  return hlo::is_unsigned(x.v.elem()) || x.v.elem() == Elem::Pred ? x : abs(self(c));
}

Expr sign(Context& c) {
  const Expr x = self(c);
  if (x.v.elem() == Elem::Pred) return x;
  return where(x > 0, number(x, 1), where(x < 0, number(x, -1), number(x, 0)));  // NaN has no sign: 0, as ATen's
}

Expr sgn(Context& c) {
  const Expr x = self(c);
  if (!hlo::is_complex(x.v.elem())) return sign(c);
  const Expr length = abs(x);
  const Expr divisor{x.b, convert_like_aten(*x.b, where(equal(length, 0), 1, length), x.v.elem())};
  return x / divisor;
}

Expr reciprocal(Context& c) {
  const Expr x = self(c);
  return number(x, 1) / x;
}
Expr log1p_of(Context& c) { return log1p(self(c)); }
Expr log2(Context& c) { return log(self(c)) * (1 / std::numbers::ln2); }
Expr log10(Context& c) { return log(self(c)) * (1 / std::numbers::ln10); }
Expr exp2(Context& c) {
  const Expr x = self(c);
  return apply("stablehlo.power", number(x, 2), x);
}

Expr atan(Context& c) {
  const Expr x = self(c);
  return x.b->target().atan_by_atan2 ? apply("stablehlo.atan2", x, number(x, 1)) : apply("chlo.atan", x);
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
  return Expr{&c.b, c.b.is_nan(apply("stablehlo.real", x))} | Expr{&c.b, c.b.is_nan(apply("stablehlo.imag", x))};
}

Expr conjugate(Context& c) {
  const Expr x = raw(c);
  if (!hlo::is_complex(x.v.elem())) return x;
  const Value real = apply("stablehlo.real", x), imag = -apply("stablehlo.imag", x);
  return {&c.b, c.b.op("stablehlo.complex", {real, imag}, x.v.type)};
}

Expr negate(Context& c) { return -self(c); }

}  // namespace

std::vector<Row> unary_rows() {
  return {
      formula({"neg.out"}, negate),
      named("exp.out", "stablehlo.exponential"),
      named("expm1.out", "stablehlo.exponential_minus_one"),
      named("log.out", "stablehlo.log"),
      formula({"log1p.out"}, log1p_of),
      formula({"log2.out"}, log2),
      formula({"log10.out"}, log10),
      formula({"exp2.out"}, exp2),
      named("sqrt.out", "stablehlo.sqrt"),
      named("rsqrt.out", "stablehlo.rsqrt"),
      formula({"reciprocal.out"}, reciprocal),
      named("sin.out", "stablehlo.sine"),
      named("cos.out", "stablehlo.cosine"),
      named("tan.out", "stablehlo.tan"),
      named("asin.out", "chlo.asin"),
      named("acos.out", "chlo.acos"),
      formula({"atan.out"}, atan),
      named("sinh.out", "chlo.sinh"),
      named("cosh.out", "chlo.cosh"),
      named("tanh.out", "stablehlo.tanh"),
      named("asinh.out", "chlo.asinh"),
      named("acosh.out", "chlo.acosh"),
      named("atanh.out", "chlo.atanh"),
      named("sigmoid.out", "stablehlo.logistic"),
      named("erf.out", "chlo.erf"),
      named("erfc.out", "chlo.erfc"),
      named("erfinv.out", "chlo.erf_inv"),
      named("lgamma.out", "chlo.lgamma"),
      named("digamma.out", "chlo.digamma"),
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
