#include "support/array.h"

#include <bit>
#include <cmath>

namespace tpupilot::test {
namespace {

using hlo::Elem;

double of_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return mantissa ? std::nan("") : sign * HUGE_VAL;
  return sign * (exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24));
}

double of_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t narrow_bits(double v, Elem elem) {
  return static_cast<uint16_t>(std::stoul(hlo::literal(v, elem), nullptr, 16));
}

// Calls f with a value of the C++ type that holds the elements of `elem`.
template <typename F>
auto with_type(Elem elem, F f) {
  switch (elem) {
    case Elem::S8:
      return f(int8_t{});
    case Elem::S16:
      return f(int16_t{});
    case Elem::S32:
      return f(int32_t{});
    case Elem::S64:
      return f(int64_t{});
    case Elem::U16:
      return f(uint16_t{});
    case Elem::U32:
      return f(uint32_t{});
    case Elem::U64:
      return f(uint64_t{});
    case Elem::F32:
      return f(float{});
    case Elem::F64:
      return f(double{});
    case Elem::Pred:
    case Elem::U8:
      return f(uint8_t{});
    default:
      throw std::invalid_argument("[doubles] no real elements in " + std::string(hlo::name(elem)));
  }
}

}  // namespace

std::vector<double> doubles(const Array& a) {
  std::vector<double> out;
  if (a.type.elem == Elem::F16 || a.type.elem == Elem::BF16) {
    for (uint16_t bits : a.as<uint16_t>()) out.push_back(a.type.elem == Elem::F16 ? of_f16(bits) : of_bf16(bits));
    return out;
  }
  with_type(a.type.elem, [&](auto sample) {
    for (auto v : a.as<decltype(sample)>()) out.push_back(static_cast<double>(v));
  });
  return out;
}

Array array(hlo::Type type, const std::vector<double>& values) {
  if (type.elem == Elem::F16 || type.elem == Elem::BF16) {
    std::vector<uint16_t> bits;
    for (double v : values) bits.push_back(narrow_bits(v, type.elem));
    return Array::of(std::move(type), bits);
  }
  return with_type(type.elem, [&](auto sample) {
    std::vector<decltype(sample)> typed;
    for (double v : values) typed.push_back(static_cast<decltype(sample)>(v));
    return Array::of(type, typed);
  });
}

}  // namespace tpupilot::test
