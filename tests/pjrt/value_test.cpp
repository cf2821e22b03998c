// The plain values: shapes, element types, the bytes of compile options.
#include <gtest/gtest.h>

#include "fake_plugin/testing.h"

namespace tpupilot {
namespace {

using pjrt::CompileOptions;
using pjrt::ElementType;
using pjrt::Error;
using pjrt::Shape;
using test::error_of;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    text.push_back("0123456789ABCDEF"[byte >> 4]);
    text.push_back("0123456789ABCDEF"[byte & 15]);
  }
  return text;
}

TEST(CompileOptions, BytesAreXlasOwn) {
  const std::string base =
      "1A1908FFFFFFFFFFFFFFFFFF0120012801620100920101"
      "00B80101";
  CompileOptions options;
  options.portable = false;
  EXPECT_EQ(hex(serialize(options)), base);
  options.portable = true;
  EXPECT_EQ(hex(serialize(options)), base + "2001");
}

TEST(CompileOptions, OverridesInOrderOfTheirNames) {
  CompileOptions options;
  options.portable = false;
  options.set("n", int64_t{300});
  options.set("b", false);
  options.set_if_known("s", "xy");
  const std::string all = hex(serialize(options)).substr(54);
  EXPECT_EQ(all,
            "3A07"
            "0A0162"
            "12021000"  // b: false
            "3A08"
            "0A016E"
            "120318AC02"  // n: 300
            "3A09"
            "0A0173"
            "12040A027879");  // s: "xy"
  EXPECT_EQ(hex(serialize(options, {"b", "n"})).substr(54), all.substr(all.size() - 22));
}

TEST(CompileOptions, TextIsNeverTakenForABool) {
  CompileOptions options;
  options.set("s", "text");
  EXPECT_TRUE(std::holds_alternative<std::string>(options.overrides["s"].value));
}

TEST(CompileOptions, LevelIsChecked) {
  CompileOptions options;
  EXPECT_EQ(error_of([&] { options.set_optimization_level(4); }).code(), Error::Code::InvalidArgument);
}

TEST(Shape, KnowsItsBytesAndComparesExactly) {
  const Shape a(ElementType::F32, {2, 3});
  EXPECT_EQ(a.byte_size(), 24u);
  EXPECT_EQ(a.str(), "f32[2,3]");
  EXPECT_TRUE(a == Shape(ElementType::F32, {2, 3}));
  EXPECT_FALSE(a == Shape(ElementType::S32, {2, 3}));
  EXPECT_FALSE(a == Shape(ElementType::F32, {3, 2}));
  EXPECT_FALSE(a == Shape(ElementType::F32, {2, 3, 1}));
  EXPECT_EQ(Shape(ElementType::BF16, {}).byte_size(), 2u);
  EXPECT_EQ(Shape(ElementType::F64, {5, 0}).byte_size(), 0u);

  const Shape deep(ElementType::S8, {1, 2, 1, 2, 1, 2, 1, 2, 1});
  const Shape copy = deep;  // NOLINT: the copy is what is tested
  EXPECT_TRUE(copy == deep);
  EXPECT_EQ(copy.byte_size(), 16u);
  EXPECT_FALSE(copy == Shape(ElementType::S8, {1, 2, 1, 2, 1, 2, 1, 2, 2}));
}

TEST(Shape, RefusesWhatCannotBe) {
  EXPECT_EQ(error_of([] { Shape(ElementType::F32, {2, -1}); }).code(), Error::Code::InvalidArgument);
  EXPECT_EQ(error_of([] { Shape(ElementType::F32, {int64_t{1} << 40, int64_t{1} << 40}); }).code(),
            Error::Code::InvalidArgument);
  EXPECT_EQ(error_of([] { Shape(ElementType::F64, {int64_t{1} << 61}); }).code(), Error::Code::InvalidArgument);
}

TEST(Element, SizesAndNames) {
  EXPECT_EQ(pjrt::byte_size(ElementType::C128), 16u);
  EXPECT_EQ(pjrt::byte_size(ElementType::S4), 1u);  // one a byte on the host
  EXPECT_EQ(pjrt::byte_size(ElementType::TOKEN), 0u);
  EXPECT_TRUE(pjrt::is_sub_byte(ElementType::F4E2M1FN));
  EXPECT_FALSE(pjrt::is_sub_byte(ElementType::PRED));
  EXPECT_EQ(pjrt::name(ElementType::BF16), "bf16");
  EXPECT_EQ(pjrt::name(ElementType::F6E3M2FN), "f6e3m2fn");
  EXPECT_EQ(pjrt::name(static_cast<ElementType>(99)), "invalid");
}

}  // namespace
}  // namespace tpupilot
