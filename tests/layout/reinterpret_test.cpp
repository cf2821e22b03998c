// Bytes seen as another type: every pair of types against a copy of the bytes on the host.
#include <gtest/gtest.h>

#include "layout/layout.h"
#include "support/run.h"

namespace tpupilot::layout {
namespace {

using hlo::Builder;
using hlo::Elem;
using hlo::Value;
using test::Array;

constexpr Elem kElems[] = {Elem::Pred, Elem::S8,  Elem::S16,  Elem::S32, Elem::S64, Elem::U8,  Elem::U16, Elem::U32,
                           Elem::U64,  Elem::F16, Elem::BF16, Elem::F32, Elem::F64, Elem::C64, Elem::C128};

// 32 bytes that are 0 and 1, so that they are booleans too; as floats they are ordinary or subnormal numbers.
std::vector<char> octets() {
  std::vector<char> bytes(32);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i % 3 == 0);
  return bytes;
}

Array typed(Elem elem, const std::vector<char>& bytes) {
  return {{elem, {static_cast<int64_t>(bytes.size() / hlo::byte_size(elem))}}, bytes};
}

TEST(Reinterpret, EveryPairOfTypes) {
  for (Elem from : kElems) {
    Builder b;
    const Array input = typed(from, octets());
    const Value flat = b.parameter(input.type);
    hlo::Values results;
    for (Elem to : kElems) results.push_back(reinterpret(b, flat, to));
    const auto out = test::evaluate(b, results, {input}, pjrt::test_options());
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i].bytes, octets()) << hlo::name(from) << " as " << hlo::name(kElems[i]);
      EXPECT_EQ(out[i].type, typed(kElems[i], octets()).type);
    }
  }
}

TEST(Reinterpret, KeepsNanPayloadsAndSignsOfZero) {
  Builder b;
  const std::vector<uint32_t> bits = {0x7FC12345, 0x80000000, 0xFF800001, 0x3F800000};
  const Array input = Array::of({Elem::F32, {4}}, bits);
  const Value flat = b.parameter(input.type);
  const Value there = reinterpret(b, flat, Elem::C64);
  const auto out = test::evaluate(
      b, {reinterpret(b, flat, Elem::U32), reinterpret(b, there, Elem::S32), reinterpret(b, flat, Elem::U8)}, {input});
  for (const Array& a : out) EXPECT_EQ(a.bytes, input.bytes);
}

TEST(Reinterpret, OfNothingIsNothing) {
  Builder b;
  const Value flat = b.parameter({Elem::F32, {0}});
  for (Elem to : kElems) EXPECT_EQ(reinterpret(b, flat, to).type, (hlo::Type{to, {0}}));
}

TEST(Reinterpret, RefusesAFractionOfAnElement) {
  Builder b;
  const Value flat = b.parameter({Elem::U8, {6}});
  try {
    reinterpret(b, flat, Elem::F32);
    FAIL();
  } catch (const hlo::Error& e) {
    EXPECT_STREQ(e.what(), "[reinterpret] 6 bytes of tensor<6xui8> are no whole number of f32");
  }
}

}  // namespace
}  // namespace tpupilot::layout
