// Reductions over every set of dims, against loops on the host; accuracy; NaN; nothing to reduce.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "support/run.h"

namespace tpupilot::hlo {
namespace {

using test::array;
using test::Array;
using test::doubles;
using Numbers = std::vector<double>;

// Folds the elements of each result index, in any order.
template <typename F>
Numbers folded(const Numbers& x, const Dims& sizes, const std::vector<bool>& reduced, double init, F f) {
  int64_t results = 1;
  for (size_t d = 0; d < sizes.size(); ++d) results *= reduced[d] ? 1 : sizes[d];
  Numbers out(static_cast<size_t>(results), init);
  for (size_t n = 0; n < x.size(); ++n) {
    int64_t at = 0, stride = 1, rest = static_cast<int64_t>(n);
    for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) {
      if (reduced[d]) continue;
      at += rest % sizes[d] * stride;
      stride *= sizes[d];
    }
    double& o = out[static_cast<size_t>(at)];
    o = f(o, x[n]);
  }
  return out;
}

struct Case {
  Elem elem;
  Dims sizes;
};

class Reductions : public ::testing::TestWithParam<Case> {};

TEST_P(Reductions, OverEverySetOfDims) {
  const auto& [elem, sizes] = GetParam();
  std::mt19937 engine(7);
  Numbers values;  // small integers: sums of them are exact in every type but bf16's last rounding
  for (int64_t n = 0; n < product(sizes); ++n)
    values.push_back(elem == Elem::Pred ? engine() % 8 == 0 : static_cast<double>(engine() % 9) - 4);
  Builder b;
  const Value x = b.parameter({elem, sizes});
  Values results;
  std::vector<Numbers> expected;
  const auto sum = [](double a, double v) { return a + v; };
  const auto larger = [](double a, double v) { return std::max(a, v); };
  const auto smaller = [](double a, double v) { return std::min(a, v); };
  for (unsigned mask = 0; mask < 1u << sizes.size(); ++mask) {
    Dims dims;
    std::vector<bool> reduced;
    for (size_t d = 0; d < sizes.size(); ++d) {
      reduced.push_back(mask >> d & 1);
      if (reduced.back()) dims.push_back(static_cast<int64_t>(d) - (d % 2 ? static_cast<int64_t>(sizes.size()) : 0));
    }
    if (elem == Elem::Pred) {
      results.insert(results.end(), {b.any(x, dims), b.all(x, dims)});
      expected.push_back(folded(values, sizes, reduced, 0, larger));
      expected.push_back(folded(values, sizes, reduced, 1, smaller));
      continue;
    }
    results.insert(results.end(), {b.sum(x, dims), b.amax(x, dims), b.amin(x, dims)});
    expected.push_back(folded(values, sizes, reduced, 0, sum));
    if (elem == Elem::BF16)
      expected.back() = doubles(array({elem, {static_cast<int64_t>(expected.back().size())}}, expected.back()));
    expected.push_back(folded(values, sizes, reduced, -99, larger));
    expected.push_back(folded(values, sizes, reduced, 99, smaller));
  }
  const auto out = test::evaluate(b, results, {array(x.type, values)}, pjrt::test_options());
  for (size_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(doubles(out[i]), expected[i]) << "result " << i << " of type " << out[i].type.str();
}

INSTANTIATE_TEST_SUITE_P(Types, Reductions,
                         ::testing::Values(Case{Elem::F32, {3, 5, 70}}, Case{Elem::F32, {2, 33, 1, 4}},
                                           Case{Elem::BF16, {7, 100}}, Case{Elem::S64, {5, 1, 67}},
                                           Case{Elem::Pred, {6, 71}}, Case{Elem::F64, {9, 2, 3}},
                                           Case{Elem::S8, {2, 3}}, Case{Elem::F32, {1}}, Case{Elem::F16, {40, 3}},
                                           Case{Elem::F32, {2, 4099}}, Case{Elem::F32, {2, 8192}}));

// Sum, over `dims`, of `x` in f32; returns the largest error over the sum of absolute values.
double error_of_sum(const Dims& sizes, const Dims& dims, Elem elem = Elem::F32) {
  std::mt19937 engine(3);
  std::uniform_real_distribution<double> uniform(0, 1);
  Numbers values(static_cast<size_t>(product(sizes)));
  for (double& v : values) v = uniform(engine);
  const Array input = array({elem, sizes}, values);
  std::vector<bool> reduced(sizes.size());
  for (int64_t d : dims) reduced[static_cast<size_t>(d)] = true;
  const Numbers exact = folded(doubles(input), sizes, reduced, 0, [](double a, double v) { return a + v; });
  Builder b;
  const Value x = b.parameter(input.type);
  const Numbers out = doubles(test::evaluate(b, {b.sum(x, dims)}, {input})[0]);
  double worst = 0;
  for (size_t i = 0; i < out.size(); ++i) worst = std::max(worst, std::fabs(out[i] - exact[i]) / exact[i]);
  return worst;
}

TEST(Accuracy, OfSumsOfAMillion) {
  // torch's pairwise sums are at about 1e-7 here; one pass over a million f32 is at 1e-5.
  EXPECT_LT(error_of_sum({1000000}, {0}), 2.5e-7);
  EXPECT_LT(error_of_sum({999983}, {0}), 2.5e-7);
  EXPECT_LT(error_of_sum({1000, 1000}, {0, 1}), 2.5e-7);
  EXPECT_LT(error_of_sum({250000, 4}, {0}), 2.5e-7);
  EXPECT_LT(error_of_sum({4, 250000}, {1}), 2.5e-7);
  EXPECT_LT(error_of_sum({32, 8, 4096}, {0, 2}), 2.5e-7);
}

TEST(Accuracy, OfNarrowSumsIsOneRounding) {
  EXPECT_LT(error_of_sum({4, 4096}, {1}, Elem::BF16), 0x1p-8);
  EXPECT_LT(error_of_sum({4096, 4}, {0}, Elem::BF16), 0x1p-8);
  EXPECT_LT(error_of_sum({4096, 4}, {0}, Elem::F16), 0x1p-11);
}

TEST(Extrema, NanWinsWhereverItStands) {
  for (Elem elem : {Elem::F32, Elem::BF16, Elem::F64}) {
    Builder b;
    const Value x = b.parameter({elem, {70, 67}});
    const auto out_of = [&](size_t at) {
      Numbers values(70 * 67, 1);
      values[at] = std::nan("");
      return array(x.type, values);
    };
    const Values results{b.amax(x, {1}), b.amin(x, {1}),    b.amax(x, {0}),
                         b.amin(x, {0}), b.amax(x, {0, 1}), b.amin(x, {0, 1})};
    for (size_t at : {size_t{0}, size_t{33}, size_t{67 * 35 + 34}, size_t{70 * 67 - 1}}) {
      const auto out = test::evaluate(b, results, {out_of(at)}, pjrt::eager_options());
      for (size_t i = 0; i < out.size(); ++i) {
        const Numbers values = doubles(out[i]);
        const size_t expected = i < 2 ? at / 67 : i < 4 ? at % 67 : 0;
        for (size_t k = 0; k < values.size(); ++k) EXPECT_EQ(std::isnan(values[k]), k == expected) << i << " " << k;
      }
    }
  }
}

TEST(Extrema, OfInfinitiesAndLimits) {
  Builder b;
  const double inf = std::numeric_limits<double>::infinity();
  const Value x = b.parameter({Elem::F32, {3}}), i = b.parameter({Elem::S64, {2}});
  const auto out =
      test::evaluate(b, {b.amax(x, {0}), b.amin(x, {0}), b.amin(i, {0})},
                     {array(x.type, {-inf, -inf, -inf}), Array::of<int64_t>(i.type, {INT64_MIN, INT64_MAX})});
  EXPECT_EQ(doubles(out[0])[0], -inf);
  EXPECT_EQ(doubles(out[1])[0], -inf);
  EXPECT_EQ(out[2].as<int64_t>()[0], INT64_MIN);
}

TEST(Empty, ReductionsGiveTheIdentity) {
  Builder b;
  const Value x = b.parameter({Elem::F32, {2, 0, 3}}), p = b.parameter({Elem::Pred, {0}}),
              half = b.parameter({Elem::BF16, {0, 2}});
  const double inf = std::numeric_limits<double>::infinity();
  const auto out =
      test::evaluate(b, {b.sum(x, {1}), b.amax(x, {1}), b.sum(x, {0}), b.any(p, {0}), b.all(p, {0}), b.sum(half, {0})},
                     {array(x.type, {}), array(p.type, {}), array(half.type, {})});
  EXPECT_EQ(doubles(out[0]), Numbers(6, 0));
  EXPECT_EQ(doubles(out[1]), Numbers(6, -inf));
  EXPECT_EQ(out[2].type.dims, (Dims{0, 3}));
  EXPECT_EQ(doubles(out[3]), Numbers{0});
  EXPECT_EQ(doubles(out[4]), Numbers{1});
  EXPECT_EQ(out[5].type, (Type{Elem::BF16, {2}}));
}

TEST(Reduced, ScalarsAndTheWayBack) {
  Builder b;
  const Value s = b.parameter({Elem::F32, {}}), x = b.parameter({Elem::F32, {2, 3, 4}});
  EXPECT_EQ(b.sum(s, {-1}).dims(), Dims{});  // torch lets a scalar be reduced over dim 0 or -1
  const Value r = b.amax(x, {1});
  EXPECT_EQ(b.keep_dims(r, x.dims(), {-2}).dims(), (Dims{2, 1, 4}));
  Numbers values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  const auto out =
      test::evaluate(b, {b.unreduce(r, x.dims(), {1}), b.sum(s, {0})}, {array(s.type, {5}), array(x.type, values)});
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(doubles(out[0])[i], static_cast<double>(i / 12 * 12 + 8 + i % 4));
  EXPECT_EQ(doubles(out[1]), Numbers{5});
}

}  // namespace
}  // namespace tpupilot::hlo
