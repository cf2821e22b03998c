// How f32 products are split: on a TPU by its compiler, elsewhere by the builder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hlo/builder.h"

namespace tpupilot::hlo {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string product(Platform platform, Passes passes, Elem elem = Elem::F32) {
  Target target;
  target.platform = platform;
  Builder b(target);
  b.set_passes(passes);
  const Value x = b.parameter({elem, {4, 8}}), y = b.parameter({elem, {8, 2}});
  const Value z = b.dot_general(x, y, {}, {}, {1}, {0});
  EXPECT_TRUE(b.contracts());
  return b.module({z});
}

size_t count(const std::string& text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(PassesTest, ElsewhereTheProductsAreWrittenOut) {
  const size_t products[] = {1, 1, 3, 6}, parts[] = {0, 2, 4, 6};
  for (const Passes passes : {Passes::Exact, Passes::One, Passes::Three, Passes::Six}) {
    const std::string text = product(Platform::Cpu, passes);
    EXPECT_EQ(count(text, "stablehlo.dot_general"), products[static_cast<size_t>(passes)]);
    EXPECT_EQ(count(text, "stablehlo.reduce_precision"), parts[static_cast<size_t>(passes)]);
    EXPECT_THAT(text, Not(HasSubstr("precision DEFAULT")));
  }
}

TEST(PassesTest, ATpuIsToldHowMany) {
  const char* names[] = {"HIGHEST", "DEFAULT", "HIGH>", "HIGHEST"};
  for (const Passes passes : {Passes::Exact, Passes::One, Passes::Three, Passes::Six}) {
    const std::string text = product(Platform::Tpu, passes);
    EXPECT_EQ(count(text, "stablehlo.dot_general"), 1U);
    EXPECT_THAT(text, HasSubstr(std::string("#stablehlo<precision ") + names[static_cast<size_t>(passes)]));
    EXPECT_THAT(text, Not(HasSubstr("reduce_precision")));
  }
}

TEST(PassesTest, OtherTypesAreWhatTheyAre) {
  for (const Elem elem : {Elem::F64, Elem::BF16, Elem::F16, Elem::S32})
    EXPECT_EQ(product(Platform::Cpu, Passes::One, elem), product(Platform::Cpu, Passes::Exact, elem));
}

TEST(PassesTest, WhatIsNoProductToTheUserStaysExact) {
  Builder b;
  b.set_passes(Passes::One);
  const Value x = b.parameter({Elem::F32, {4, 8}});
  const Value sums = b.exact_dot_general(x, b.constant(1, {Elem::F32, {8}}), {}, {}, {1}, {0});
  EXPECT_FALSE(b.contracts());
  EXPECT_EQ(b.target().passes, Passes::One);
  EXPECT_THAT(b.module({sums}), Not(HasSubstr("reduce_precision")));
}

}  // namespace
}  // namespace tpupilot::hlo
