// Element-wise functions of two or three tensors, or of a tensor and a Scalar.
#include <limits>

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
Row named(std::string_view overload, std::string_view op) {
  return {.overloads = {overload},
          .emit = [op](Context& c) { return Values{apply(op, operand(c, "self"), operand(c, "other"))}; }};
}

Expr self(Context& c) { return operand(c, "self"); }
Expr other(Context& c) { return operand(c, "other"); }
bool integral(const Expr& x) { return hlo::is_integer(x.v.elem()); }

// `x` times the Scalar argument, unless that is 1.
Expr times(Context& c, const Expr& x, std::string_view factor) {
  return c.is_identity(factor) ? x : x * expr(c, c.scalar(factor, x.v.elem()));
}

Expr add(Context& c) { return self(c) + times(c, other(c), "alpha"); }
Expr sub(Context& c) { return self(c) - times(c, other(c), "alpha"); }
Expr rsub(Context& c) { return other(c) - times(c, self(c), "alpha"); }
Expr addcmul(Context& c) { return self(c) + times(c, operand(c, "tensor1"), "value") * operand(c, "tensor2"); }
Expr addcdiv(Context& c) { return self(c) + times(c, operand(c, "tensor1"), "value") / operand(c, "tensor2"); }

// ---- division ----
Expr truncated(const Expr& x) { return where(x < 0, apply("stablehlo.ceil", x), apply("stablehlo.floor", x)); }
Expr modulo(const Expr& x, const Expr& y) { return apply("stablehlo.remainder", x, y); }  // of x's sign

// True where the remainder `r` of a division by `y` has the wrong sign for a quotient rounded down.
Expr off_by_one(const Expr& r, const Expr& y) { return (!equal(r, 0)) & Expr{r.b, r.b->compare(hlo::Direction::NE, r < 0, y < 0)}; }

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
  const Expr zero = where(x / y < 0, number(x, -0.0), number(x, 0));
  return where(equal(y, 0), x / y, where(equal(q, 0), zero, nearest));
}

Expr divide(Context& c) { return self(c) / other(c); }
Expr divide_rounded(Context& c) {
  if (!c.given("rounding_mode")) return divide(c);
  if (c.string("rounding_mode") == "floor") return floor_division(self(c), other(c));
  const Expr q = divide(c);
  return integral(q) ? q : truncated(q);
}
Expr floor_divide(Context& c) { return floor_division(self(c), other(c)); }
Expr remainder(Context& c) {
  const Expr x = self(c), y = other(c), r = modulo(x, y);
  return hlo::is_unsigned(x.v.elem()) ? r : where(off_by_one(r, y), r + y, r);
}

// ---- powers ----
Expr power(const Expr& x, const Expr& y) {
  const Expr p = apply("stablehlo.power", x, y);
  if (!hlo::is_signed_integer(x.v.elem())) return p;
  // c10::pow of integers: a negative exponent leaves only 1 and -1.
  const Expr odd = !equal(Expr{x.b, x.b->binary("stablehlo.and", y, number(y, 1))}, 0);
  const Expr minus_one = where(odd, number(x, -1), number(x, 1));
  const Expr negative = where(equal(x, 1), 1, where(equal(x, -1), minus_one, number(x, 0)));
  return where(y < 0, negative, p);
}
Expr pow(Context& c) { return power(self(c), operand(c, "exponent")); }

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
  Expr x = self(c);
  if (c.has_argument("min") && c.given("min")) x = maximum(x, operand(c, "min"));
  if (c.has_argument("max") && c.given("max")) x = minimum(x, operand(c, "max"));
  return x;
}

// ---- others ----
Expr copysign(Context& c) {
  const Expr x = abs(self(c)), y = other(c);
  const Elem bits = y.v.elem() == Elem::F64 ? Elem::S64 : Elem::S32;
  const Expr negative = Expr{&c.b, c.b.bitcast(y, {bits, y.v.dims()})} < 0;
  return where(negative, -x, x);
}
Expr hypot(Context& c) {
  const Expr x = abs(self(c)), y = abs(other(c));
  const Expr large = maximum(x, y), small = minimum(x, y);
  const Expr ratio = small / large;
  const Expr h = large * sqrt(1 + ratio * ratio);
  return where(equal(large, 0) | equal(large, std::numeric_limits<double>::infinity()), large, h);
}
Expr xlogy(Context& c) {
  const Expr x = self(c), y = other(c);
  return where(nan(y), y, where(equal(x, 0), 0, x * log(y)));
}
Expr logaddexp(Context& c) {
  const Expr x = self(c), y = other(c), m = maximum(x, y);
  return where(equal(x, y) & equal(abs(x), std::numeric_limits<double>::infinity()), x, m + log1p(exp(-abs(x - y))));
}
// at::native::lerp: exact at both ends.
Expr lerp(Context& c) {
  const Expr x = self(c), end = operand(c, "end"), w = operand(c, "weight");
  return where(abs(w) < 0.5, x + w * (end - x), end - (end - x) * (1 - w));
}
Expr where_self(Context& c) {
  const Expr condition{&c.b, c.b.broadcast(convert_like_aten(c.b, c.tensor("condition"), Elem::Pred), c.result().dims)};
  return where(condition, operand(c, "self", c.result().elem, c.result().dims), operand(c, "other", c.result().elem, c.result().dims));
}

Row logical(std::string_view overload, std::string_view op) {
  return {.overloads = {overload}, .emit = [op](Context& c) {
            return Values{apply(op, operand(c, "self", Elem::Pred, c.result().dims), operand(c, "other", Elem::Pred, c.result().dims))};
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
      named("fmod.Tensor_out", "stablehlo.remainder"),
      formula({"pow.Tensor_Tensor_out", "pow.Tensor_Scalar_out", "pow.Scalar_out"}, pow),
      scaled({"addcmul.out"}, "value", addcmul),
      scaled({"addcdiv.out"}, "value", addcdiv),
      formula({"lerp.Scalar_out", "lerp.Tensor_out"}, lerp),
      named("maximum.out", "stablehlo.maximum"),
      named("minimum.out", "stablehlo.minimum"),
      formula({"fmax.out"}, fmax),
      formula({"fmin.out"}, fmin),
      formula({"clamp.out", "clamp.Tensor_out", "clamp_min.out", "clamp_min.Tensor_out", "clamp_max.out", "clamp_max.Tensor_out"}, clamp),
      named("atan2.out", "stablehlo.atan2"),
      formula({"copysign.out"}, copysign),
      formula({"hypot.out"}, hypot),
      formula({"xlogy.OutTensor"}, xlogy),
      formula({"logaddexp.out"}, logaddexp),
      formula({"where.self", "where.self_out"}, where_self),
      named("bitwise_and.Tensor_out", "stablehlo.and"),
      named("bitwise_or.Tensor_out", "stablehlo.or"),
      named("bitwise_xor.Tensor_out", "stablehlo.xor"),
      named("bitwise_left_shift.Tensor_out", "stablehlo.shift_left"),
      named("bitwise_right_shift.Tensor_out", "stablehlo.shift_right_arithmetic"),
      logical("logical_and.out", "stablehlo.and"),
      logical("logical_or.out", "stablehlo.or"),
      logical("logical_xor.out", "stablehlo.xor"),
  };
}

}  // namespace tpupilot::ops
