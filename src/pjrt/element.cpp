#include "pjrt/element.h"

#include <array>

namespace tpupilot::pjrt {
namespace {

struct Facts {
  std::string_view name;
  unsigned bits;  // on the device, packed
};

// In the order of PJRT_Buffer_Type.
constexpr std::array<Facts, 34> kFacts = {{
    {"invalid", 0},    {"pred", 8},   {"s8", 8},       {"s16", 16},          {"s32", 32},
    {"s64", 64},       {"u8", 8},     {"u16", 16},     {"u32", 32},          {"u64", 64},
    {"f16", 16},       {"f32", 32},   {"f64", 64},     {"bf16", 16},         {"c64", 64},
    {"c128", 128},     {"f8e5m2", 8}, {"f8e4m3fn", 8}, {"f8e4m3b11fnuz", 8}, {"f8e5m2fnuz", 8},
    {"f8e4m3fnuz", 8}, {"s4", 4},     {"u4", 4},       {"token", 0},         {"s2", 2},
    {"u2", 2},         {"f8e4m3", 8}, {"f8e3m4", 8},   {"f8e8m0fnu", 8},     {"f4e2m1fn", 4},
    {"s1", 1},         {"u1", 1},     {"f6e2m3fn", 6}, {"f6e3m2fn", 6},
}};

const Facts& facts(ElementType type) {
  const auto index = static_cast<size_t>(type);
  return kFacts[index < kFacts.size() ? index : 0];
}

}  // namespace

std::string_view name(ElementType type) { return facts(type).name; }
size_t byte_size(ElementType type) { return (facts(type).bits + 7) / 8; }
bool is_sub_byte(ElementType type) { return facts(type).bits > 0 && facts(type).bits < 8; }

}  // namespace tpupilot::pjrt
