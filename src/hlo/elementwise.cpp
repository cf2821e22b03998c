// Element-wise ops. Result types and the element types an op accepts follow the StableHLO specification.
#include <array>

#include "hlo/builder.h"
#include "hlo/text.h"

namespace tpupilot::hlo {
namespace {

template <size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 3> kUnaryOfIntegers = {"stablehlo.abs", "stablehlo.negate", "stablehlo.sign"};
constexpr std::array<std::string_view, 2> kBitCounts = {"stablehlo.popcnt", "stablehlo.count_leading_zeros"};
constexpr std::array<std::string_view, 4> kPredicates = {"stablehlo.is_finite", "chlo.is_inf", "chlo.is_pos_inf",
                                                         "chlo.is_neg_inf"};
constexpr std::array<std::string_view, 3> kRealParts = {"stablehlo.abs", "stablehlo.real", "stablehlo.imag"};
constexpr std::array<std::string_view, 3> kBitwise = {"stablehlo.and", "stablehlo.or", "stablehlo.xor"};
constexpr std::array<std::string_view, 3> kShifts = {"stablehlo.shift_left", "stablehlo.shift_right_arithmetic",
                                                     "stablehlo.shift_right_logical"};
constexpr std::array<std::string_view, 7> kBinaryOfPred = {
    "stablehlo.and",     "stablehlo.or",      "stablehlo.xor",     "stablehlo.add",
    "stablehlo.maximum", "stablehlo.minimum", "stablehlo.multiply"};

bool unary_accepts(std::string_view name, Elem elem) {
  if (name.starts_with("chlo.")) return is_float(elem) || is_complex(elem);
  if (name == "stablehlo.not") return is_integer(elem) || elem == Elem::Pred;
  if (is_one_of(name, kBitCounts)) return is_integer(elem);
  if (is_integer(elem)) return is_one_of(name, kUnaryOfIntegers);
  return elem != Elem::Pred;
}

bool binary_accepts(std::string_view name, Elem elem) {
  if (is_one_of(name, kBitwise)) return is_integer(elem) || elem == Elem::Pred;
  if (is_one_of(name, kShifts)) return is_integer(elem);
  if (name == "stablehlo.complex") return elem == Elem::F32 || elem == Elem::F64;
  return elem != Elem::Pred || is_one_of(name, kBinaryOfPred);
}

std::string_view comparison_type(Elem elem, bool total_order) {
  if (total_order) return "TOTALORDER";
  if (is_float(elem) || is_complex(elem)) return "FLOAT";
  return is_signed_integer(elem) ? "SIGNED" : "UNSIGNED";
}

}  // namespace

std::string_view spelled(Direction d) {
  constexpr std::array<std::string_view, 6> kNames = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  return kNames.at(static_cast<size_t>(d));
}

Value Builder::unary(std::string_view name, const Value& x) {
  if (!unary_accepts(name, x.elem())) fail(name, "does not take " + x.type.str());
  Elem out = x.elem();
  if (is_one_of(name, kRealParts)) out = real_of(out);
  if (is_one_of(name, kPredicates)) out = Elem::Pred;
  return op(name, {x}, x.type.with(out));
}

Value Builder::binary(std::string_view name, const Value& a, const Value& b) {
  if (a.type != b.type) fail(name, "operands of different types: " + a.type.str() + " and " + b.type.str());
  if (!binary_accepts(name, a.elem())) fail(name, "does not take " + a.type.str());
  return op(name, {a, b}, name == "stablehlo.complex" ? a.type.with(complex_of(a.elem())) : a.type);
}

Value Builder::compare(Direction d, const Value& a, const Value& b, bool total_order) {
  if (a.type != b.type) fail("compare", "operands of different types: " + a.type.str() + " and " + b.type.str());
  if (total_order && !is_float(a.elem())) fail("compare", "a total order needs floats, not " + a.type.str());
  if (is_complex(a.elem()) && d != Direction::EQ && d != Direction::NE) fail("compare", a.type.str() + " has no order");
  const std::string attributes = "comparison_direction = #stablehlo<comparison_direction " + std::string(spelled(d)) +
                                 ">, compare_type = #stablehlo<comparison_type " +
                                 std::string(comparison_type(a.elem(), total_order)) + ">";
  return op("stablehlo.compare", {a, b}, a.type.with(Elem::Pred), attributes);
}

Value Builder::select(const Value& pred, const Value& on_true, const Value& on_false) {
  if (on_true.type != on_false.type) {
    fail("select", "branches of different types: " + on_true.type.str() + " and " + on_false.type.str());
  }
  if (pred.elem() != Elem::Pred || (pred.rank() != 0 && pred.dims() != on_true.dims())) {
    fail("select", "a predicate of type " + pred.type.str() + " for " + on_true.type.str());
  }
  return op("stablehlo.select", {pred, on_true, on_false}, on_true.type);
}

Value Builder::convert(const Value& x, Elem elem) {
  if (x.elem() == elem) return x;
  if (elem == Elem::Invalid) fail("convert", "the element type is Invalid");
  if (is_complex(x.elem()) && elem == Elem::Pred) return compare(Direction::NE, x, zeros(x.type));
  // StableHLO has no conversion from complex to real numbers: as ATen does, keep the real part.
  if (is_complex(x.elem()) && !is_complex(elem)) return convert(unary("stablehlo.real", x), elem);
  return op("stablehlo.convert", {x}, x.type.with(elem));
}

Value Builder::bitcast(const Value& x, Type type) {
  const size_t from = byte_size(x.elem()), to = byte_size(type.elem);
  Dims expected = x.dims();
  bool fits = from != 0 && to != 0 && x.elem() != Elem::Pred && type.elem != Elem::Pred;
  fits = fits && (x.elem() == type.elem || (!is_complex(x.elem()) && !is_complex(type.elem)));
  if (fits && from > to) expected.push_back(static_cast<int64_t>(from / to));
  if (fits && from < to) {
    fits = !expected.empty() && expected.back() == static_cast<int64_t>(to / from);
    if (fits) expected.pop_back();
  }
  if (!fits || expected != type.dims) fail("bitcast", x.type.str() + " to " + type.str());
  return x.type == type ? x : op("stablehlo.bitcast_convert", {x}, std::move(type));
}

Value Builder::is_nan(const Value& x) {
  if (!is_float(x.elem()) && !is_complex(x.elem())) return constant(0, x.type.with(Elem::Pred));
  return compare(Direction::NE, x, x);
}

}  // namespace tpupilot::hlo
