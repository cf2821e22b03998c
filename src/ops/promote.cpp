#include "ops/promote.h"

#include <array>
#include <limits>

namespace tpupilot::ops {
namespace {

enum class Category { Bool, Integer, Float, Complex };

Category category(Elem e) {
  if (e == Elem::Pred) return Category::Bool;
  if (hlo::is_integer(e)) return Category::Integer;
  return hlo::is_complex(e) ? Category::Complex : Category::Float;
}

Value float_to_integer(Builder& b, const Value& x, Elem elem) {
  if (elem != Elem::S32 && elem != Elem::S64) {
    return elem == Elem::U64 ? b.convert(x, elem) : b.convert(float_to_integer(b, x, Elem::S64), elem);
  }
  // What cvttsd2si does with NaN and with what does not fit.
  const double limit = elem == Elem::S32 ? 2147483648.0 : 9223372036854775808.0;
  const Value wide = b.convert(x, x.elem() == Elem::F64 ? Elem::F64 : Elem::F32);
  const Value fits = b.logical_and(b.compare(hlo::Direction::GE, wide, b.constant(-limit, wide.type)),
                                   b.compare(hlo::Direction::LT, wide, b.constant(limit, wide.type)));
  const Value converted = b.convert(wide, elem);
  const int64_t least = elem == Elem::S32 ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int64_t>::min();
  return b.select(fits, converted, b.constant_int(least, converted.type));
}

// The category that an argument has in at::result_type: 0 a tensor with dims, 1 a 0-d tensor, 2 a Python number.
struct Operand {
  Elem elem;
  int rank_class;
};

Elem default_complex(const Context& c) { return hlo::complex_of(hlo::compute_elem(c.default_elem())); }

Operand operand_type(Context& c, std::string_view name) {
  if (c.is_scalar(name)) {
    const Elem elems[] = {Elem::Pred, Elem::S64, c.default_elem(), default_complex(c)};
    return {elems[static_cast<int>(c.scalar_kind(name))], 2};
  }
  const Value v = c.tensor(name);
  if (!c.is_wrapped_number(name)) return {v.elem(), v.rank() > 0 ? 0 : 1};
  // A Python float or complex takes the default dtype when it decides alone.
  return {v.elem() == Elem::F64 ? c.default_elem() : v.elem() == Elem::C128 ? default_complex(c) : v.elem(), 2};
}

}  // namespace

Value convert_like_aten(Builder& b, const Value& x, Elem elem) {
  const Elem from = x.elem();
  if (from == elem) return x;
  if (hlo::is_complex(from)) {
    if (elem == Elem::Pred) {
      const Value real = convert_like_aten(b, b.unary("stablehlo.real", x), elem);
      return b.logical_or(real, convert_like_aten(b, b.unary("stablehlo.imag", x), elem));
    }
    if (hlo::is_complex(elem)) return b.convert(x, elem);
    return convert_like_aten(b, b.unary("stablehlo.real", x), elem);
  }
  if (hlo::is_complex(elem)) {
    const Value real = b.convert(x, hlo::real_of(elem));
    return b.op("stablehlo.complex", {real, b.zeros(real.type)}, {elem, x.dims()});
  }
  if (elem == Elem::Pred) return b.compare(hlo::Direction::NE, x, b.zeros(x.type));
  if (hlo::is_float(from) && hlo::is_integer(elem)) return float_to_integer(b, x, elem);
  return b.convert(x, elem);
}

Elem promote(Elem a, Elem b) {
  if (a == b) return a;
  const Category ca = category(a), cb = category(b);
  if (ca != cb) {
    const Elem high = ca > cb ? a : b, low = ca > cb ? b : a;
    if (category(high) == Category::Complex && low == Elem::F64) return Elem::C128;
    return high;
  }
  if (ca == Category::Complex) return Elem::C128;
  if (ca == Category::Float) {
    if (a == Elem::F64 || b == Elem::F64) return Elem::F64;
    return Elem::F32;  // two of f16, bf16, f32 that differ
  }
  const size_t sa = hlo::byte_size(a), sb = hlo::byte_size(b);
  const bool ua = hlo::is_unsigned(a), ub = hlo::is_unsigned(b);
  if (ua == ub) return sa > sb ? a : b;
  const Elem sign = ua ? b : a, un = ua ? a : b;
  if (hlo::byte_size(sign) > hlo::byte_size(un)) return sign;
  static constexpr std::array<Elem, 3> kNext = {Elem::S16, Elem::S32, Elem::S64};
  return hlo::byte_size(un) == 1 ? kNext[0] : hlo::byte_size(un) == 2 ? kNext[1] : kNext[2];
}

Elem result_type(Context& c, std::string_view a, std::string_view b) {
  const Operand x = operand_type(c, a), y = operand_type(c, b);
  if (x.rank_class == y.rank_class) return promote(x.elem, y.elem);
  const Operand high = x.rank_class < y.rank_class ? x : y, low = x.rank_class < y.rank_class ? y : x;
  // The weaker one counts only if it is of a higher category; then it is promoted with the stronger one's type.
  if (category(low.elem) <= category(high.elem)) return high.elem;
  // c10::toComplexType, without a complex type of half width.
  if (category(low.elem) == Category::Complex && category(high.elem) == Category::Float) {
    return hlo::complex_of(hlo::compute_elem(high.elem));
  }
  return low.elem;
}

Expr operand(Context& c, std::string_view name, Elem elem, const Dims& dims) {
  const Value v = c.is_scalar(name) ? c.scalar(name, elem) : convert_like_aten(c.b, c.tensor(name), elem);
  return {&c.b, c.b.broadcast(v, dims)};
}

Expr operand(Context& c, std::string_view name) { return operand(c, name, result_opmath(c), c.result().dims); }

}  // namespace tpupilot::ops
