// Element-wise helpers and constants, by number.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/run.h"

namespace tpupilot::hlo {
namespace {

using test::array;
using test::Array;
using test::doubles;
using Numbers = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

Numbers run_one(Builder& b, const Value& result, const std::vector<Array>& inputs = {}) {
  return doubles(test::evaluate(b, {result}, inputs)[0]);
}

// NaN equals NaN, and zeros must have the same sign.
void expect_same(const Numbers& actual, const Numbers& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const bool same = std::isnan(expected[i])
                          ? std::isnan(actual[i])
                          : actual[i] == expected[i] && std::signbit(actual[i]) == std::signbit(expected[i]);
    EXPECT_TRUE(same) << "element " << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

TEST(Constants, SurviveTheTextExactly) {
  const Numbers values = {1.0 / 3, -0.0, kInf, -kInf, kNan, 65504, 0x1p-24, 0x1p-126, 3.4e38, 5e-324};
  for (Elem elem : {Elem::F16, Elem::BF16, Elem::F32, Elem::F64}) {
    Builder b;
    Values results;
    for (double v : values) results.push_back(b.constant(v, {elem, {}}));
    const auto out = test::evaluate(b, results);
    for (size_t i = 0; i < out.size(); ++i) {
      SCOPED_TRACE(std::string(name(elem)) + " of " + std::to_string(values[i]));
      const double v = values[i];
      if (elem == Elem::F64) expect_same(doubles(out[i]), {v});
      if (elem == Elem::F32) expect_same(doubles(out[i]), {static_cast<float>(v)});
      if (elem == Elem::F16 && i < 7 && i > 0) expect_same(doubles(out[i]), {v});
      if (elem == Elem::BF16 && i < 5 && i > 0) expect_same(doubles(out[i]), {v});
    }
  }
}

TEST(Constants, OfIntegersAndTheirLimits) {
  Builder b;
  Values results;
  const Elem elems[] = {Elem::Pred, Elem::S8,  Elem::S16, Elem::S32, Elem::U8,
                        Elem::U16,  Elem::U32, Elem::F32, Elem::BF16};
  for (Elem e : elems) {
    results.push_back(b.lowest({e, {}}));
    results.push_back(b.highest({e, {}}));
  }
  results.push_back(b.constant_ints({3, -1, 127}, Elem::S8));
  results.push_back(b.iota({Elem::BF16, {2, 3}}, 1));
  const Numbers expected = {0,   1, -128,  127, -32768,     32767, -2147483648.0, 2147483647, 0,
                            255, 0, 65535, 0,   4294967295, -kInf, kInf,          -kInf,      kInf};
  const auto out = test::evaluate(b, results);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(doubles(out[i]), Numbers{expected[i]}) << i;
  EXPECT_EQ(doubles(out[expected.size()]), (Numbers{3, -1, 127}));
  EXPECT_EQ(doubles(out[expected.size() + 1]), (Numbers{0, 1, 2, 0, 1, 2}));
}

TEST(Constants, Of64BitsAndComplex) {
  Builder b;
  const Values results{b.lowest({Elem::S64, {}}), b.highest({Elem::S64, {}}), b.highest({Elem::U64, {}}),
                       b.constant_complex({1.5, -2}, {Elem::C64, {2}}), b.constant(3, {Elem::C128, {}})};
  const auto out = test::evaluate(b, results);
  EXPECT_EQ(out[0].as<int64_t>()[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(out[1].as<int64_t>()[0], std::numeric_limits<int64_t>::max());
  EXPECT_EQ(out[2].as<uint64_t>()[0], std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(out[3].as<std::complex<float>>()[1], std::complex<float>(1.5, -2));
  EXPECT_EQ(out[4].as<std::complex<double>>()[0], std::complex<double>(3, 0));
}

TEST(Elementwise, ArithmeticOfEveryKindOfNumber) {
  const Numbers x = {6, -4, 3, 0}, y = {2, 4, -3, 5};
  for (Elem elem : {Elem::F32, Elem::BF16, Elem::F64, Elem::S64, Elem::S8}) {
    SCOPED_TRACE(name(elem));
    Builder b;
    const Type type{elem, {4}};
    const Value p = b.parameter(type), q = b.parameter(type);
    const auto out =
        test::evaluate(b, {b.add(p, q), b.sub(p, q), b.mul(p, q), b.div(p, q), b.max(p, q), b.min(p, q), b.neg(p)},
                       {array(type, x), array(type, y)});
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(doubles(out[0])[i], x[i] + y[i]);
      EXPECT_EQ(doubles(out[1])[i], x[i] - y[i]);
      EXPECT_EQ(doubles(out[2])[i], x[i] * y[i]);
      EXPECT_EQ(doubles(out[3])[i], x[i] / y[i]);
      EXPECT_EQ(doubles(out[4])[i], std::max(x[i], y[i]));
      EXPECT_EQ(doubles(out[5])[i], std::min(x[i], y[i]));
      EXPECT_EQ(doubles(out[6])[i], -x[i]);
    }
  }
}

TEST(Elementwise, LogicOfPred) {
  Builder b;
  const Type type{Elem::Pred, {4}};
  const Value p = b.parameter(type), q = b.parameter(type);
  const auto out = test::evaluate(b, {b.logical_and(p, q), b.logical_or(p, q), b.logical_not(p), b.max(p, q)},
                                  {array(type, {0, 0, 1, 1}), array(type, {0, 1, 0, 1})});
  EXPECT_EQ(doubles(out[0]), (Numbers{0, 0, 0, 1}));
  EXPECT_EQ(doubles(out[1]), (Numbers{0, 1, 1, 1}));
  EXPECT_EQ(doubles(out[2]), (Numbers{1, 1, 0, 0}));
  EXPECT_EQ(doubles(out[3]), (Numbers{0, 1, 1, 1}));
}

TEST(Elementwise, ComparesAsTheElementTypeDoes) {
  const auto compare = [](Elem elem, Direction d, double x, double y, bool total = false) {
    Builder b;
    const Value p = b.parameter({elem, {}}), q = b.parameter({elem, {}});
    return run_one(b, b.compare(d, p, q, total), {array(p.type, {x}), array(q.type, {y})})[0] != 0;
  };
  for (Elem elem : {Elem::F32, Elem::BF16, Elem::S64, Elem::U8}) {
    EXPECT_TRUE(compare(elem, Direction::LT, 1, 200)) << name(elem);  // 200 is negative if u8 were compared as signed
    EXPECT_FALSE(compare(elem, Direction::GE, 1, 200));
    EXPECT_TRUE(compare(elem, Direction::EQ, 7, 7));
    EXPECT_TRUE(compare(elem, Direction::LE, 7, 7));
    EXPECT_FALSE(compare(elem, Direction::GT, 7, 7));
  }
  EXPECT_TRUE(compare(Elem::Pred, Direction::GT, 1, 0));
  EXPECT_TRUE(compare(Elem::F32, Direction::NE, kNan, kNan));
  EXPECT_FALSE(compare(Elem::F32, Direction::LT, -0.0, 0.0));
  EXPECT_TRUE(compare(Elem::F32, Direction::LT, -0.0, 0.0, true));
  EXPECT_TRUE(compare(Elem::F32, Direction::LT, kInf, kNan, true));
}

TEST(Elementwise, SelectsByElementAndByScalar) {
  Builder b;
  const Value p = b.parameter({Elem::Pred, {3}}), scalar = b.parameter({Elem::Pred, {}});
  const Value x = b.parameter({Elem::S64, {3}}), y = b.parameter({Elem::S64, {3}});
  const auto out = test::evaluate(
      b, {b.select(p, x, y), b.select(scalar, x, y)},
      {array(p.type, {1, 0, 1}), array(scalar.type, {0}), array(x.type, {1, 2, 3}), array(y.type, {4, 5, 6})});
  EXPECT_EQ(doubles(out[0]), (Numbers{1, 5, 3}));
  EXPECT_EQ(doubles(out[1]), (Numbers{4, 5, 6}));
}

TEST(Elementwise, Converts) {
  Builder b;
  const Value x = b.parameter({Elem::F32, {4}}), p = b.parameter({Elem::Pred, {2}});
  const Value c = b.parameter({Elem::C64, {3}});
  const auto out = test::evaluate(
      b,
      {b.convert(x, Elem::S32), b.convert(x, Elem::Pred), b.convert(x, Elem::BF16), b.convert(p, Elem::F32),
       b.convert(c, Elem::F64), b.convert(c, Elem::Pred), b.convert(x, Elem::C64)},
      {array(x.type, {1.75, -1.75, 0, 1 + 0x3p-8}), array(p.type, {0, 1}),
       Array::of<std::complex<float>>(c.type, {{1.5, 2}, {0, 3}, {0, 0}})});
  EXPECT_EQ(doubles(out[0]), (Numbers{1, -1, 0, 1}));
  EXPECT_EQ(doubles(out[1]), (Numbers{1, 1, 0, 1}));
  EXPECT_EQ(doubles(out[2]), (Numbers{1.75, -1.75, 0, 1 + 0x1p-6}));
  EXPECT_EQ(doubles(out[3]), (Numbers{0, 1}));
  EXPECT_EQ(doubles(out[4]), (Numbers{1.5, 0, 0}));
  EXPECT_EQ(doubles(out[5]), (Numbers{1, 1, 0}));
  EXPECT_EQ(out[6].as<std::complex<float>>()[1], std::complex<float>(-1.75, 0));
  EXPECT_EQ(b.convert(x, Elem::F32).name, x.name);
}

TEST(Elementwise, BitcastsBetweenSizes) {
  Builder b;
  const Value x = b.parameter({Elem::F32, {2}});
  const Value halves = b.bitcast(x, {Elem::U16, {2, 2}});
  const auto out = test::evaluate(b, {b.bitcast(x, {Elem::S32, {2}}), halves, b.bitcast(halves, {Elem::F32, {2}})},
                                  {array(x.type, {1, -2})});
  EXPECT_EQ(out[0].as<uint32_t>(), (std::vector<uint32_t>{0x3F800000, 0xC0000000}));
  EXPECT_EQ(out[1].as<uint16_t>(), (std::vector<uint16_t>{0, 0x3F80, 0, 0xC000}));
  EXPECT_EQ(doubles(out[2]), (Numbers{1, -2}));
}

TEST(Elementwise, FindsNan) {
  Builder b;
  const Value x = b.parameter({Elem::BF16, {3}}), i = b.parameter({Elem::S64, {1}}), c = b.parameter({Elem::C64, {2}});
  const auto out = test::evaluate(b, {b.is_nan(x), b.is_nan(i), b.is_nan(c)},
                                  {array(x.type, {kNan, kInf, 0}), array(i.type, {1}),
                                   Array::of<std::complex<float>>(c.type, {{0, std::nanf("")}, {1, 1}})});
  EXPECT_EQ(doubles(out[0]), (Numbers{1, 0, 0}));
  EXPECT_EQ(doubles(out[1]), Numbers{0});
  EXPECT_EQ(doubles(out[2]), (Numbers{1, 0}));
}

TEST(Elementwise, UnaryTypesFollowTheSpecification) {
  Builder b;
  const Value x = b.parameter({Elem::F32, {2}}), c = b.parameter({Elem::C64, {1}}), i = b.parameter({Elem::S32, {1}});
  const auto out = test::evaluate(
      b,
      {b.unary("stablehlo.tanh", x), b.unary("chlo.erf", x), b.unary("stablehlo.is_finite", x),
       b.unary("stablehlo.abs", c), b.unary("stablehlo.imag", c), b.unary("stablehlo.popcnt", i)},
      {array(x.type, {0.5, kInf}), Array::of<std::complex<float>>(c.type, {{3, -4}}), array(i.type, {7})});
  EXPECT_NEAR(doubles(out[0])[0], std::tanh(0.5), 1e-6);
  EXPECT_NEAR(doubles(out[1])[0], std::erf(0.5), 1e-6);
  EXPECT_EQ(doubles(out[2]), (Numbers{1, 0}));
  EXPECT_EQ(doubles(out[3]), Numbers{5});
  EXPECT_EQ(doubles(out[4]), Numbers{-4});
  EXPECT_EQ(doubles(out[5]), Numbers{3});
}

}  // namespace
}  // namespace tpupilot::hlo
