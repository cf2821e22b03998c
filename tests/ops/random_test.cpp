// Distributions by their moments over one draw; the bounds are five standard errors wide.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ops/layer_call.h"

namespace tpupilot::test {
namespace {

using hlo::Elem;

constexpr int64_t kCount = 20000;
const hlo::Type kDraw{Elem::F32, {kCount}};

double mean(const std::vector<double>& v) {
  double total = 0;
  for (const double x : v) total += x / static_cast<double>(v.size());
  return total;
}
double moment(const std::vector<double>& v, double centre, int power) {
  std::vector<double> powers;
  for (const double x : v) powers.push_back(std::pow(x - centre, power));
  return mean(powers);
}
double error(double variance) { return 5 * std::sqrt(variance / kCount); }

TEST(Random, UniformFillsItsIntervalAndFollowsTheSeed) {
  const auto draw = [](uint64_t seed) {
    return LayerCall("uniform_").scalar("from", 2).scalar("to", 5).seed(seed).result(kDraw).values();
  };
  const auto first = draw(1);
  EXPECT_GE(*std::min_element(first.begin(), first.end()), 2);
  EXPECT_LT(*std::max_element(first.begin(), first.end()), 5);
  EXPECT_NEAR(mean(first), 3.5, error(0.75));
  EXPECT_NEAR(moment(first, 3.5, 2), 0.75, error(0.45));
  EXPECT_EQ(first, draw(1));
  EXPECT_NE(first, draw(2));
}

TEST(Random, NarrowUniformNeverReachesItsEnd) {
  const auto values = LayerCall("uniform_").scalar("from", 0).scalar("to", 1).result({Elem::BF16, {kCount}}).values();
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 1);
}

TEST(Random, NormalMoments) {
  for (const Elem elem : {Elem::F32, Elem::F64}) {
    const auto values = LayerCall("normal_").scalar("mean", 1).scalar("std", 2).result({elem, {kCount}}).values();
    EXPECT_NEAR(mean(values), 1, error(4));
    EXPECT_NEAR(moment(values, 1, 2), 4, error(32));
    EXPECT_NEAR(moment(values, 1, 3), 0, error(15 * 64));
    EXPECT_NEAR(moment(values, 1, 4), 48, error(96 * 256));
  }
}

TEST(Random, BernoulliIsSureAtBothEnds) {
  const auto draw = [](double p) { return LayerCall("bernoulli_.float").scalar("p", p).result(kDraw).values(); };
  EXPECT_EQ(draw(0), std::vector<double>(kCount, 0));
  EXPECT_EQ(draw(1), std::vector<double>(kCount, 1));
  EXPECT_NEAR(mean(draw(0.3)), 0.3, error(0.21));
}

TEST(Random, ExponentialIsPositive) {
  const auto values = LayerCall("exponential_").scalar("lambd", 2).result(kDraw).values();
  EXPECT_GT(*std::min_element(values.begin(), values.end()), 0);
  EXPECT_NEAR(mean(values), 0.5, error(0.25));
}

TEST(Random, IntegersCoverTheirRange) {
  const auto values = LayerCall("random_.from")
                          .integer_scalar("from", -3)
                          .integer_scalar("to", 7)
                          .result({Elem::S64, {kCount}})
                          .values();
  EXPECT_EQ(std::set<double>(values.begin(), values.end()).size(), 10u);
  EXPECT_NEAR(mean(values), 1.5, error(8.25));
}

TEST(Random, PermutationHoldsEachNumberOnce) {
  auto values = LayerCall("randperm.generator_out").set("n", 1000).result({Elem::S64, {1000}}).values();
  EXPECT_FALSE(std::is_sorted(values.begin(), values.end()));
  std::sort(values.begin(), values.end());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<double>(i));
}

TEST(Random, DropoutScalesWhatItKeeps) {
  const Array ones = f32({kCount}, std::vector<double>(kCount, 1));
  const auto drop = [&](double p) {
    return LayerCall("native_dropout")
        .tensor("input", ones)
        .scalar("p", p)
        .set("train", true)
        .result(kDraw)
        .result({Elem::Pred, {kCount}})
        .run();
  };
  const auto out = drop(0.25);
  const auto values = doubles(*out[0]), mask = doubles(*out[1]);
  EXPECT_NEAR(mean(mask), 0.75, error(0.1875));
  for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], mask[i] / 0.75, 1e-6);
  const auto nothing = doubles(*drop(1)[0]);
  EXPECT_EQ(*std::max_element(nothing.begin(), nothing.end()), 0);
}

}  // namespace
}  // namespace tpupilot::test
