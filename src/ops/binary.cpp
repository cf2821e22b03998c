// Element-wise functions of two or three tensors, or of a tensor and a Scalar.
#include <limits>
#include <numbers>
#include <numeric>

#include "ops/complex.h"
#include "ops/promote.h"

namespace tpupilot::ops {
namespace {

Row formula(std::vector<std::string_view> overloads, Expr (*f)(Context&)) {
  return {.overloads = std::move(overloads), .emit = [f](Context& c) { return Values{f(c)}; }};
}
Row scaled(std::vector<std::string_view> overloads, std::string_view factor, Expr (*f)(Context&)) {
  Row row = formula(std::move(overloads), f);
  row.identities = {{factor, 1}};
  return row;
}
// ATen combines two operands in their common type and converts the outcome, which matters where the result is narrower
// (in place, out=): f32.add_(f64) adds in f64. Functions that make floats of integers are computed in the result's
// type.
Expr operand_of_two(Context& c, std::string_view name, std::string_view a, std::string_view b) {
  const Elem result = c.result().elem, common = result_type(c, a, b);
  const bool alike =
      hlo::is_float(common) == hlo::is_float(result) && hlo::is_complex(common) == hlo::is_complex(result);
  return operand(c, name, hlo::compute_elem(alike ? promote(common, result) : result), c.result().dims);
}
Row named(std::string_view overload, std::string_view op) {
  return {.overloads = {overload}, .emit = [op](Context& c) {
            return Values{
                apply(op, operand_of_two(c, "self", "self", "other"), operand_of_two(c, "other", "self", "other"))};
          }};
}

Expr self(Context& c) { return operand_of_two(c, "self", "self", "other"); }
Expr other(Context& c) { return operand_of_two(c, "other", "self", "other"); }
bool integral(const Expr& x) { return hlo::is_integer(x.v.elem()); }

// `x` times the Scalar argument, unless that is 1.
Expr times(Context& c, const Expr& x, std::string_view factor) {
  return c.is_identity(factor) ? x : x * expr(c, c.scalar(factor, x.v.elem()));
}

Expr add(Context& c) { return self(c) + times(c, other(c), "alpha"); }
Expr sub(Context& c) { return self(c) - times(c, other(c), "alpha"); }
Expr rsub(Context& c) { return other(c) - times(c, self(c), "alpha"); }
Expr addcmul(Context& c) {
  return operand(c, "self") + times(c, operand(c, "tensor1"), "value") * operand(c, "tensor2");
}

// ---- division ----
Expr truncated(const Expr& x) { return where(x < 0, apply("stablehlo.ceil", x), apply("stablehlo.floor", x)); }
Expr modulo(const Expr& x, const Expr& y) { return apply("stablehlo.remainder", x, y); }  // of x's sign

// True where the remainder `r` of a division by `y` has the wrong sign for a quotient rounded down.
Expr off_by_one(const Expr& r, const Expr& y) {
  return (!equal(r, 0)) & Expr{r.b, r.b->compare(hlo::Direction::NE, r < 0, y < 0)};
}

Expr floor_division(const Expr& x, const Expr& y) {
  const Expr r = modulo(x, y);
  if (integral(x)) {
    const Expr q = x / y;
    return hlo::is_unsigned(x.v.elem()) ? q : where(off_by_one(r, y), q - 1, q);
  }
  // c10::div_floor_floating: the quotient of what divides exactly, which rounding in x / y cannot spoil.
  const Expr exact = (x - r) / y;
  const Expr q = where(off_by_one(r, y), exact - 1, exact);
  const Expr down = apply("stablehlo.floor", q);
  const Expr nearest = where(q - down > 0.5, down + 1, down);
  const Expr zero = where(sign_is_set(x / y), number(x, -0.0), number(x, 0));
  return where(equal(y, 0), x / y, where(equal(q, 0), zero, nearest));
}

// "other"; integers have no quotient by zero.
Expr divisor(Context& c) {
  const Expr y = other(c), given = expr(c, c.tensor("other"));  // before it is broadcast
  if (integral(y)) c.require(!equal(given, 0), {}, {Refusal::Kind::Runtime, "ZeroDivisionError"});
  return y;
}

Expr quotient(const Expr& x, const Expr& y) { return hlo::is_complex(x.v.elem()) ? complex_divide(x, y) : x / y; }
Expr divide(Context& c) { return quotient(self(c), other(c)); }
Expr addcdiv(Context& c) {
  return operand(c, "self") + quotient(times(c, operand(c, "tensor1"), "value"), operand(c, "tensor2"));
}
Expr divide_rounded(Context& c) {
  if (!c.given("rounding_mode")) return divide(c);
  if (c.string("rounding_mode") == "floor") return floor_division(self(c), divisor(c));
  const Expr q = self(c) / divisor(c);
  // div_trunc_kernel rounds a quotient of f16 or bf16 before it cuts it.
  return integral(q) ? q : truncated(convert(convert(q, c.result().elem), q.v.elem()));
}
Expr floor_divide(Context& c) { return floor_division(self(c), divisor(c)); }
Expr fmod(Context& c) { return modulo(self(c), divisor(c)); }
Expr remainder(Context& c) {
  const Expr x = self(c), y = divisor(c), r = modulo(x, y);
  return hlo::is_unsigned(x.v.elem()) ? r : where(off_by_one(r, y), r + y, r);
}

// ---- powers ----
Expr integer_power(const Expr& base, const Expr& exponent) {
  // By squaring, modulo the width, as c10's powi; one turn for each bit of the largest exponent.
  Builder& b = *base.b;
  const auto of = [&b](const Value& v) { return Expr{&b, v}; };
  Dims all(base.v.rank());
  std::iota(all.begin(), all.end(), 0);
  const Values out = b.while_loop(
      {base, exponent, number(base, 1)},
      [&](const Values& s) { return b.any(b.compare(hlo::Direction::NE, s[1], b.zeros(s[1].type)), all); },
      [&](const Values& s) {
        const Expr x = of(s[0]), n = of(s[1]), total = of(s[2]);
        const Expr odd = !equal(n & number(n, 1), 0);
        return Values{x * x, apply("stablehlo.shift_right_logical", n, number(n, 1)), where(odd, total * x, total)};
      });
  return of(out[2]);
}
// Exponents that pow_tensor_scalar_optimized_kernel computes by other means, which a program must ask for.
Expr complex_power_by_scalar(const Expr& x, const Expr& y) {
  const Expr square = x * x;
  Expr value = where(equal(y, -2), complex_reciprocal(square), complex_power(x, y));
  value = where(equal(y, -1), complex_reciprocal(x), where(equal(y, -0.5), complex_rsqrt(x), value));
  value = where(equal(y, 3), square * x, where(equal(y, 2), square, value));
  return where(equal(y, 0), 1, where(equal(y, 1), x, where(equal(y, 0.5), complex_sqrt(x), value)));
}
Expr power(const Expr& x, const Expr& y) {
  if (hlo::is_complex(x.v.elem())) return complex_power(x, y);
  if (!integral(x)) return apply("stablehlo.power", x, y);
  if (hlo::is_unsigned(x.v.elem())) return integer_power(x, y);
  // A negative exponent leaves only 1 and -1.
  const Expr odd = !equal(y & number(y, 1), 0);
  const Expr minus_one = where(odd, number(x, -1), number(x, 1));
  const Expr negative = where(equal(x, 1), 1, where(equal(x, -1), minus_one, number(x, 0)));
  return where(y < 0, negative, integer_power(x, where(y < 0, number(y, 0), y)));
}
Expr pow(Context& c) {
  const Expr x = operand_of_two(c, "self", "self", "exponent"), y = operand_of_two(c, "exponent", "self", "exponent");
  if (hlo::is_complex(x.v.elem()) && c.is_scalar("exponent")) return complex_power_by_scalar(x, y);
  return power(x, y);
}

// ---- extrema: NaN wins, but for fmax and fmin ----
Expr nan(const Expr& x) { return {x.b, x.b->is_nan(x)}; }
Expr fmax(Context& c) {
  const Expr x = self(c), y = other(c);
  return where(nan(x), y, where(nan(y), x, maximum(x, y)));
}
Expr fmin(Context& c) {
  const Expr x = self(c), y = other(c);
  return where(nan(x), y, where(nan(y), x, minimum(x, y)));
}
// min(max(x, low), high): where the bounds cross, the upper one wins.
Expr clamp(Context& c) {
  Expr x = operand(c, "self");
  if (c.has_argument("min") && c.given("min")) x = maximum(x, operand(c, "min"));
  if (c.has_argument("max") && c.given("max")) x = minimum(x, operand(c, "max"));
  return x;
}

// ---- others ----
Expr copysign(Context& c) {
  const Expr x = abs(self(c));
  return where(sign_is_set(other(c)), -x, x);
}
Expr atan2_of_two(Context& c) { return atan2(self(c), other(c)); }

Expr hypot(Context& c) {
  const Expr x = abs(self(c)), y = abs(other(c));
  const Expr large = maximum(x, y), ratio = minimum(x, y) / large;
  const Expr h = where(equal(large, 0), large, large * sqrt(1 + ratio * ratio));
  const double infinity = std::numeric_limits<double>::infinity();
  return where(equal(x, infinity) | equal(y, infinity), infinity, h);  // even beside a NaN
}
Expr xlogy(Context& c) {
  const Expr x = self(c), y = other(c);
  return where(nan(y), y, where(equal(x, 0), 0, x * log(y)));
}
Expr xlog1py(Context& c) {
  const Expr x = self(c), y = other(c);
  return where(nan(y), y, where(equal(x, 0), 0, x * log1p(y)));
}
Expr same_infinity(const Expr& x, const Expr& y) {
  return equal(x, y) & equal(abs(x), std::numeric_limits<double>::infinity());
}
Expr logaddexp(Context& c) {
  const Expr x = self(c), y = other(c);
  if (hlo::is_complex(x.v.elem())) return complex_logaddexp(x, y);
  return where(same_infinity(x, y), x, maximum(x, y) + log1p(exp(-abs(x - y))));
}
Expr logaddexp2(Context& c) {
  const Expr x = self(c), y = other(c);
  const Expr tail = log1p(apply("stablehlo.power", number(x, 2), -abs(x - y))) * (1 / std::numbers::ln2);
  return where(same_infinity(x, y), x, maximum(x, y) + tail);
}
Expr heaviside(Context& c) {
  const Expr x = operand(c, "self");
  return where(equal(x, 0), operand(c, "values"), where(x > 0, number(x, 1), number(x, 0)));
}
// In the type itself: the neighbour of an f32 is of no use to a bf16.
Expr nextafter(Context& c) {
  const Type& out = c.result();
  return apply("chlo.next_after", operand(c, "self", out.elem, out.dims), operand(c, "other", out.elem, out.dims));
}
Expr polar(Context& c) {
  const Type part = c.result().with(hlo::real_of(c.result().elem));
  const Expr length = operand(c, "abs", part.elem, part.dims), angle = operand(c, "angle", part.elem, part.dims);
  return complex(length * apply("stablehlo.cosine", angle), length * apply("stablehlo.sine", angle));
}

// ---- greatest common divisor: Euclid's remainders until all are 0 ----
Expr magnitude(const Expr& x) { return hlo::is_unsigned(x.v.elem()) ? x : abs(x); }
Expr gcd_of(const Expr& x, const Expr& y) {
  Builder& b = *x.b;
  if (!integral(x)) throw hlo::Error("[gcd] not implemented for " + x.v.type.str() + "; give integers");
  const auto of = [&b](const Value& v) { return Expr{&b, v}; };
  Dims all(x.v.rank());
  std::iota(all.begin(), all.end(), 0);
  const Values out = b.while_loop(
      {magnitude(x), magnitude(y)},
      [&](const Values& s) { return b.any(b.compare(hlo::Direction::NE, s[1], b.zeros(s[1].type)), all); },
      [&](const Values& s) {
        const Expr larger = of(s[0]), smaller = of(s[1]);
        const Expr done = equal(smaller, 0);
        return Values{where(done, larger, smaller), where(done, 0, modulo(larger, where(done, 1, smaller)))};
      });
  return of(out[0]);
}
Expr gcd(Context& c) { return gcd_of(self(c), other(c)); }
Expr lcm(Context& c) {
  const Expr x = self(c), y = other(c), g = gcd_of(x, y);
  const Expr divisor = where(equal(g, 0), 1, g);
  return where(equal(g, 0), 0, magnitude(x / divisor * y));
}
// at::native::lerp: exact at both ends.
Expr lerp(Context& c) {
  const Expr x = operand(c, "self"), end = operand(c, "end"), w = operand(c, "weight");
  return where(abs(w) < 0.5, x + w * (end - x), end - (end - x) * (1 - w));
}
Expr where_self(Context& c) {
  const Expr condition{&c.b, c.b.broadcast(convert_like_aten(c.b, c.tensor("condition"), Elem::Pred), c.result().dims)};
  return where(condition, operand(c, "self", c.result().elem, c.result().dims),
               operand(c, "other", c.result().elem, c.result().dims));
}

Expr right_shift(Context& c) {
  const Expr x = self(c);
  return apply(hlo::is_unsigned(x.v.elem()) ? "stablehlo.shift_right_logical" : "stablehlo.shift_right_arithmetic", x,
               other(c));
}

Row logical(std::string_view overload, std::string_view op) {
  return {.overloads = {overload}, .emit = [op](Context& c) {
            return Values{apply(op, operand(c, "self", Elem::Pred, c.result().dims),
                                operand(c, "other", Elem::Pred, c.result().dims))};
          }};
}

}  // namespace

std::vector<Row> binary_rows() {
  return {
      scaled({"add.out"}, "alpha", add),
      scaled({"sub.out"}, "alpha", sub),
      scaled({"rsub.Tensor", "rsub.Scalar"}, "alpha", rsub),
      named("mul.out", "stablehlo.multiply"),
      formula({"div.out"}, divide),
      formula({"div.out_mode"}, divide_rounded),
      formula({"floor_divide", "floor_divide.out", "floor_divide_.Tensor"}, floor_divide),
      formula({"remainder.Tensor_out"}, remainder),
      formula({"fmod.Tensor_out"}, fmod),
      formula({"pow.Tensor_Tensor_out", "pow.Tensor_Scalar_out", "pow.Scalar_out"}, pow),
      scaled({"addcmul.out"}, "value", addcmul),
      scaled({"addcdiv.out"}, "value", addcdiv),
      formula({"lerp.Scalar_out", "lerp.Tensor_out"}, lerp),
      named("maximum.out", "stablehlo.maximum"),
      named("minimum.out", "stablehlo.minimum"),
      formula({"fmax.out"}, fmax),
      formula({"fmin.out"}, fmin),
      formula({"clamp.out", "clamp.Tensor_out", "clamp_min.out", "clamp_min.Tensor_out", "clamp_max.out",
               "clamp_max.Tensor_out"},
              clamp),
      formula({"atan2.out"}, atan2_of_two),
      formula({"copysign.out"}, copysign),
      formula({"hypot.out"}, hypot),
      formula({"xlogy.OutTensor"}, xlogy),
      formula({"special_xlog1py.out"}, xlog1py),
      formula({"logaddexp.out"}, logaddexp),
      formula({"logaddexp2.out"}, logaddexp2),
      formula({"heaviside.out"}, heaviside),
      formula({"nextafter.out"}, nextafter),
      formula({"polar.out"}, polar),
      formula({"gcd.out"}, gcd),
      formula({"lcm.out"}, lcm),
      named("special_zeta.out", "chlo.zeta"),
      formula({"where.self", "where.self_out"}, where_self),
      named("bitwise_and.Tensor_out", "stablehlo.and"),
      named("bitwise_or.Tensor_out", "stablehlo.or"),
      named("bitwise_xor.Tensor_out", "stablehlo.xor"),
      named("bitwise_left_shift.Tensor_out", "stablehlo.shift_left"),
      formula({"bitwise_right_shift.Tensor_out"}, right_shift),
      logical("logical_and.out", "stablehlo.and"),
      logical("logical_or.out", "stablehlo.or"),
      logical("logical_xor.out", "stablehlo.xor"),
  };
}

}  // namespace tpupilot::ops
