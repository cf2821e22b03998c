// Reductions, scans, order and positions against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ops/layer_call.h"

namespace tpupilot::test {
namespace {

using hlo::Dims;
using hlo::Elem;
using hlo::Type;

TEST(Reduction, NarrowFloatsAreSummedInF32) {
  const Array x = array({Elem::BF16, {512}}, std::vector<double>(512, 1.0));  // a bf16 sum would stop at 256
  EXPECT_EQ(LayerCall("sum.IntList_out").tensor("self", x).set("dim", Dims{0}).result({Elem::BF16, {}}).values()[0],
            512);
}

TEST(Reduction, EmptySumsAndMeans) {
  const Array x = f32({0, 3}, {});
  EXPECT_EQ(LayerCall("sum.IntList_out").tensor("self", x).set("dim", Dims{0}).result({Elem::F32, {3}}).values(),
            std::vector<double>(3, 0));
  for (const double v : LayerCall("mean.out").tensor("self", x).set("dim", Dims{0}).result({Elem::F32, {3}}).values())
    EXPECT_TRUE(std::isnan(v));
  EXPECT_THROW(LayerCall("max").tensor("self", x).result({Elem::F32, {}}).run(), hlo::Error);
}

TEST(Reduction, FirstOfEqualExtremaAndNanWins) {
  const Array x = f32({3, 4}, {1, 5, 5, 2, 3, kNan, 9, kNan, -kInf, -kInf, -kInf, -kInf});
  const Type values{Elem::F32, {3}}, indices{Elem::S64, {3}};
  const auto out = LayerCall("max.dim_max").tensor("self", x).set("dim", 1).result(values).result(indices).run();
  expect_near(doubles(*out[0]), {5, kNan, -kInf});
  EXPECT_EQ(doubles(*out[1]), (std::vector<double>{1, 1, 0}));
  EXPECT_EQ(LayerCall("argmin.out").tensor("self", x).set("dim", -1).result(indices).values(),
            (std::vector<double>{0, 1, 0}));
}

TEST(Reduction, VarianceOfIntegersIsAnError) {
  EXPECT_THROW(LayerCall("var.correction")
                   .tensor("self", s64({2}, {1, 2}))
                   .none("dim")
                   .none("correction")
                   .result({Elem::F32, {}})
                   .run(),
               hlo::Error);
}

TEST(Reduction, NanSumSkipsNan) {
  const Array x = f32({4}, {1, kNan, 2, kNan});
  EXPECT_EQ(LayerCall("nansum").tensor("self", x).none("dim").result({Elem::F32, {}}).values()[0], 3);
}

// Long enough for the form by windows, and with values that a product with ones would spread.
TEST(Scan, InfinitiesAndNanReachOnlyWhatFollows) {
  constexpr int64_t kLength = 100;
  std::vector<double> values(kLength, 1), expected(kLength);
  values[50] = kInf;
  values[80] = kNan;
  std::partial_sum(values.begin(), values.end(), expected.begin());
  const Array x = f32({kLength}, values);
  expect_near(LayerCall("cumsum.out").tensor("self", x).set("dim", 0).result(x.type).values(), expected, 1e-6);
}

TEST(Scan, IntegerSumsAreExactAlongAnInnerDim) {
  std::vector<double> values(60), expected(60);
  for (int i = 0; i < 60; ++i) values[i] = (i * 37) % 11 - 5;
  for (int i = 0; i < 60; ++i) expected[i] = values[i] + (i >= 3 ? expected[i - 3] : 0);
  const Array x = s64({20, 3}, values);
  EXPECT_EQ(LayerCall("cumsum.out").tensor("self", x).set("dim", 0).result(x.type).values(), expected);
}

TEST(Scan, RunningMaximumTakesTheLastOfEqualOnesAndKeepsNan) {
  const Array x = f32({7}, {2, 1, 2, kNan, 5, kNan, 9});
  const auto out =
      LayerCall("_cummax_helper").tensor("self", x).set("dim", 0).result(x.type).result({Elem::S64, {7}}).run();
  expect_near(doubles(*out[0]), {2, 2, 2, kNan, kNan, kNan, kNan});
  EXPECT_EQ(doubles(*out[1]), (std::vector<double>{0, 0, 2, 3, 3, 5, 5}));
}

TEST(Scan, LogarithmsOfSums) {
  const Array x = f32({4}, {-kInf, 0, 1000, 1000});
  expect_near(LayerCall("_logcumsumexp").tensor("self", x).set("dim", 0).values(),
              {-kInf, 0, 1000, 1000 + std::log(2.0)});
}

LayerCall sort(const Array& x, bool descending) {
  LayerCall call("sort.values_stable");
  call.tensor("self", x).set("dim", -1).set("descending", descending).result(x.type).result(x.type.with(Elem::S64));
  return call;
}

TEST(Sort, StableWithNanLastAndZerosEqual) {
  const Array x = f32({7}, {0.0, -0.0, kNan, -1, 0.0, kInf, -kInf});
  const auto up = sort(x, false).run(), down = sort(x, true).run();
  EXPECT_EQ(doubles(*up[1]), (std::vector<double>{6, 3, 0, 1, 4, 5, 2}));
  EXPECT_TRUE(std::signbit(doubles(*up[0])[3])) << "-0 stays -0";
  EXPECT_EQ(doubles(*down[1]), (std::vector<double>{2, 5, 0, 1, 4, 3, 6}));
}

TEST(Sort, WideKeysAndExtremeIntegers) {
  const auto least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  const Array x = Array::of<int64_t>({Elem::S64, {4}}, {3, most, least, 3});
  EXPECT_EQ(sort(x, false).run()[0]->as<int64_t>(), (std::vector<int64_t>{least, 3, 3, most}));
  const Array y = Array::of<int32_t>({Elem::S32, {3}}, {2147483647, -2147483647 - 1, 0});
  EXPECT_EQ(doubles(*sort(y, true).run()[1]), (std::vector<double>{0, 2, 1}));
  const Array z = array({Elem::F64, {3}}, {1e300, kNan, -1e300});
  EXPECT_EQ(doubles(*sort(z, false).run()[1]), (std::vector<double>{2, 0, 1}));
}

TEST(Order, MediansWithAndWithoutNan) {
  const Array x = f32({2, 4}, {4, 1, 3, 2, kNan, 5, 7, 6});
  const Type values{Elem::F32, {2}}, indices{Elem::S64, {2}};
  const auto along = [&](const char* overload) {
    return LayerCall(overload).tensor("self", x).set("dim", 1).result(values).result(indices).run();
  };
  const auto median = along("median.dim_values"), nanmedian = along("nanmedian.dim_values");
  expect_near(doubles(*median[0]), {2, kNan});
  EXPECT_EQ(doubles(*median[1]), (std::vector<double>{3, 0}));
  expect_near(doubles(*nanmedian[0]), {2, 6});
  EXPECT_EQ(doubles(*nanmedian[1]), (std::vector<double>{3, 3}));
}

TEST(Order, ModeIsTheSmallestOfTheMostCommon) {
  const Array x = s64({8}, {5, 1, 5, 1, 9, 1, 5, 2});
  const auto out =
      LayerCall("mode").tensor("self", x).set("dim", 0).result({Elem::S64, {}}).result({Elem::S64, {}}).run();
  EXPECT_EQ(doubles(*out[0])[0], 1);
  EXPECT_EQ(doubles(*out[1])[0], 5);
}

TEST(Search, BothSidesAndNan) {
  const Array rows = f32({5}, {1, 2, 2, 3, 8}), values = f32({5}, {0, 2, 9, kNan, 3});
  const auto searched = [&](bool right) {
    return LayerCall("searchsorted.Tensor")
        .tensor("sorted_sequence", rows)
        .tensor("self", values)
        .set("right", right)
        .none("side")
        .none("sorter")
        .result({Elem::S64, {5}})
        .values();
  };
  EXPECT_EQ(searched(false), (std::vector<double>{0, 1, 5, 5, 3}));
  EXPECT_EQ(searched(true), (std::vector<double>{0, 3, 5, 5, 4}));
}

TEST(Search, MembersOfManyCandidates) {
  std::vector<double> candidates;
  for (int i = 0; i < 100; ++i) candidates.push_back(3 * i);
  const Array x = s64({4}, {-3, 0, 297, 298});
  const auto out = LayerCall("isin.Tensor_Tensor_out")
                       .tensor("elements", x)
                       .tensor("test_elements", s64({100}, candidates))
                       .set("invert", false)
                       .result({Elem::Pred, {4}})
                       .values();
  EXPECT_EQ(out, (std::vector<double>{0, 1, 1, 0}));
}

TEST(Fill, TriangleIndices) {
  const auto indices = [](const char* overload, int64_t rows, int64_t columns, int64_t offset, int64_t total) {
    return LayerCall(overload)
        .set("row", rows)
        .set("col", columns)
        .set("offset", offset)
        .result({Elem::S64, {2, total}})
        .values();
  };
  EXPECT_EQ(indices("tril_indices", 3, 2, -1, 3), (std::vector<double>{1, 2, 2, 0, 0, 1}));
  EXPECT_EQ(indices("triu_indices", 2, 3, 1, 3), (std::vector<double>{0, 0, 1, 1, 2, 2}));
}

TEST(Shape, WindowsAreSummedBack) {
  const std::vector<double> expected = {1, 1, 2, 1, 2, 1, 2, 1, 1};
  const Array x = f32({4, 3}, std::vector<double>(12, 1));
  const auto out = LayerCall("unfold_backward")
                       .tensor("grad_in", x)
                       .set("input_sizes", Dims{9})
                       .set("dim", 0)
                       .set("size", 3)
                       .set("step", 2)
                       .result({Elem::F32, {9}})
                       .values();
  EXPECT_EQ(out, expected);
}

}  // namespace
}  // namespace tpupilot::test
