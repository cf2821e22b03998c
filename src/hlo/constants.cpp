// Literals and constants. Floats are spelled as bit patterns: they survive the text exactly.
#include <bit>
#include <cmath>
#include <limits>

#include "hlo/builder.h"
#include "hlo/text.h"

namespace tpupilot::hlo {
namespace {

// The bits of `v` rounded to nearest even in an IEEE format with these field widths. Straight from f64: going
// through f32 would round twice.
uint64_t narrowed(double v, int exponent_bits, int mantissa_bits) {
  const uint64_t sign = static_cast<uint64_t>(std::signbit(v)) << (exponent_bits + mantissa_bits);
  const uint64_t infinity = ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
  if (std::isnan(v)) return sign | infinity | uint64_t{1} << (mantissa_bits - 1);
  if (std::isinf(v)) return sign | infinity;
  if (v == 0) return sign;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  // 2^(exponent - mantissa_bits) is the unit in the last place; subnormals share that of the smallest normal.
  const int exponent = std::max(std::ilogb(v), 1 - bias);
  const double units = std::nearbyint(std::ldexp(std::fabs(v), mantissa_bits - exponent));
  // A normal number's leading one adds itself to the exponent field, and so does a carry of the rounding.
  const uint64_t bits = static_cast<uint64_t>(units) + (static_cast<uint64_t>(exponent + bias - 1) << mantissa_bits);
  return sign | std::min(bits, infinity);
}

std::string hex(uint64_t bits, int digits) {
  std::string text(static_cast<size_t>(digits), '0');
  for (size_t i = text.size(); i-- > 0; bits >>= 4) text[i] = "0123456789ABCDEF"[bits & 15];
  return "0x" + text;
}

std::string float_literal(double v, Elem elem) {
  switch (elem) {
    case Elem::F16:
      return hex(narrowed(v, 5, 10), 4);
    case Elem::BF16:
      return hex(narrowed(v, 8, 7), 4);
    case Elem::F32:
      return hex(std::isnan(v) ? 0x7FC00000 : std::bit_cast<uint32_t>(static_cast<float>(v)), 8);
    default:
      return hex(std::isnan(v) ? 0x7FF8000000000000 : std::bit_cast<uint64_t>(v), 16);
  }
}

int integer_bits(Elem elem) { return static_cast<int>(byte_size(elem)) * 8; }

[[noreturn]] void not_representable(const std::string& v, Elem elem) {
  throw Error("[constant] " + v + " is not a value of " + std::string(name(elem)));
}

std::string integer_literal(int64_t v, Elem elem) {
  const int bits = integer_bits(elem);
  bool fits = elem == Elem::Pred ? v == 0 || v == 1 : true;
  if (is_signed_integer(elem) && bits < 64) fits = v >= -(int64_t{1} << (bits - 1)) && v < int64_t{1} << (bits - 1);
  if (is_unsigned(elem)) fits = v >= 0 && (bits == 64 || v < int64_t{1} << bits);
  if (!fits) not_representable(std::to_string(v), elem);
  if (elem == Elem::Pred) return v ? "true" : "false";
  return std::to_string(v);
}

// An f64 that rounds to every narrower format as `v` itself does: bits below f64's precision become a sticky odd bit.
double as_double(int64_t v, Elem elem) {
  constexpr uint64_t kLost = (uint64_t{1} << 10) - 1;
  uint64_t magnitude = v < 0 ? uint64_t{0} - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
  if (real_of(elem) == Elem::F64 || magnitude < uint64_t{1} << 53) return static_cast<double>(v);
  if (magnitude & kLost) magnitude = (magnitude & ~kLost) | (kLost + 1);
  return v < 0 ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
}

std::string text_of(double v) {
  std::ostringstream text;
  text.precision(17);
  text << v;
  return text.str();
}

std::string smallest_integer(Elem elem) {
  if (!is_signed_integer(elem)) return "0";
  return std::to_string(std::numeric_limits<int64_t>::min() >> (64 - integer_bits(elem)));
}

std::string largest_integer(Elem elem) {
  if (is_unsigned(elem)) return std::to_string(std::numeric_limits<uint64_t>::max() >> (64 - integer_bits(elem)));
  return std::to_string(std::numeric_limits<int64_t>::max() >> (64 - integer_bits(elem)));
}

}  // namespace

std::string literal(double v, Elem elem) {
  if (is_float(elem)) return float_literal(v, elem);
  if (is_complex(elem)) return "(" + float_literal(v, real_of(elem)) + ", " + float_literal(0, real_of(elem)) + ")";
  if (elem == Elem::Invalid) throw Error("[literal] the element type is Invalid");
  constexpr double kTwo63 = 9223372036854775808.0;
  if (elem == Elem::U64 && v >= kTwo63 && v < 2 * kTwo63) return std::to_string(static_cast<uint64_t>(v));
  if (!(v >= -kTwo63 && v < kTwo63) || v != std::trunc(v)) not_representable(text_of(v), elem);
  return integer_literal(static_cast<int64_t>(v), elem);
}

Value Builder::splat(const std::string& literal, Type type) {
  const std::string inner = type.numel() == 0 ? "" : literal;
  const std::string value = "value = dense<" + inner + "> : " + type.str();
  return op("stablehlo.constant", {}, std::move(type), value);
}

Value Builder::constant(double v, Type type) {
  const std::string text = literal(v, type.elem);
  return splat(text, std::move(type));
}

Value Builder::constant_int(int64_t v, Type type) {
  if (is_float(type.elem) || is_complex(type.elem)) {
    const double value = as_double(v, type.elem);
    return constant(value, std::move(type));
  }
  if (type.elem == Elem::Invalid) fail("constant_int", "the element type is Invalid");
  const std::string text = integer_literal(v, type.elem);
  return splat(text, std::move(type));
}

Value Builder::constant_complex(std::complex<double> v, Type type) {
  if (!is_complex(type.elem)) fail("constant_complex", type.str() + " is not a complex type");
  const Elem part = real_of(type.elem);
  return splat("(" + float_literal(v.real(), part) + ", " + float_literal(v.imag(), part) + ")", std::move(type));
}

Value Builder::constant_ints(const std::vector<int64_t>& values, Elem elem) {
  const Type type{elem, {static_cast<int64_t>(values.size())}};
  if (!is_integer(elem) && elem != Elem::Pred) fail("constant_ints", type.str() + " is not an integer type");
  std::string text;
  for (int64_t v : values) text += (text.empty() ? "[" : ", ") + integer_literal(v, elem);
  return splat(text + "]", type);
}

Value Builder::lowest(Type type) {
  if (is_float(type.elem)) return constant(-std::numeric_limits<double>::infinity(), std::move(type));
  if (type.elem == Elem::Pred) return constant(0, std::move(type));
  if (!is_integer(type.elem)) fail("lowest", type.str() + " has no order");
  const std::string text = smallest_integer(type.elem);
  return splat(text, std::move(type));
}

Value Builder::highest(Type type) {
  if (is_float(type.elem)) return constant(std::numeric_limits<double>::infinity(), std::move(type));
  if (type.elem == Elem::Pred) return constant(1, std::move(type));
  if (!is_integer(type.elem)) fail("highest", type.str() + " has no order");
  const std::string text = largest_integer(type.elem);
  return splat(text, std::move(type));
}

Value Builder::iota(Type type, int64_t dim) {
  if (dim < 0 || dim >= type.rank()) fail("iota", "dimension " + std::to_string(dim) + " of " + type.str());
  if (type.elem == Elem::Pred) fail("iota", type.str() + ": booleans cannot count");
  return op("stablehlo.iota", {}, std::move(type), "iota_dimension = " + integer_attribute(dim));
}

}  // namespace tpupilot::hlo
