// Element-wise rows against formulas of the host, at the places where forms go wrong: NaN, infinities, -0, integer
// division, overflow, small arguments.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/layer_call.h"

namespace tpupilot::test {
namespace {

using hlo::Elem;

const std::vector<double> kEdges = {0.0, -0.0, 1, -1, 2.5, -2.5, 0.5, 1.5, 3, -7, 1e-3, 1e-7, -1e-4, kInf, -kInf, kNan};

Array edges(Elem elem = Elem::F32) { return array({elem, {static_cast<int64_t>(kEdges.size())}}, kEdges); }

// Every edge with every other: the left operands in runs, the right ones in turn.
std::pair<std::vector<double>, std::vector<double>> pairs(const std::vector<double>& values) {
  std::vector<double> x, y;
  for (const double a : values) {
    for (const double b : values) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  return {x, y};
}

std::vector<double> unary(const char* overload, Elem result = Elem::F32) {
  const Array x = edges();
  return LayerCall(overload).tensor("self", x).result(x.type.with(result)).values();
}

// NaN like NaN, the sign of zero counted.
void expect_same(const std::vector<double>& actual, const std::vector<double>& expected, double relative = 0) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(actual[i])) << i << ": " << actual[i];
      continue;
    }
    if (std::isinf(expected[i])) {
      EXPECT_EQ(actual[i], expected[i]) << i;
    } else {
      EXPECT_LE(std::fabs(actual[i] - expected[i]), relative * std::fabs(expected[i]))
          << i << ": " << actual[i] << " is not " << expected[i];
    }
    EXPECT_EQ(std::signbit(actual[i]), std::signbit(expected[i])) << i << ": the sign of " << actual[i];
  }
}

std::vector<double> each(double (*f)(double)) {
  std::vector<double> out;
  for (const double x : doubles(edges())) out.push_back(f(x));
  return out;
}

TEST(Unary, Log1pIsExactForSmallArguments) {
  expect_same(unary("log1p.out"), each([](double x) { return std::log1p(x); }), 3e-7);
}

TEST(Unary, Log1pOfComplexNumbers) {
  const Array x = Array::of<std::complex<float>>({Elem::C64, {1}}, {{1e-3F, 2}});
  const std::complex<double> expected = std::log(std::complex<double>(1.001, 2));
  const auto y = LayerCall("log1p.out").tensor("self", x).result(x.type).run()[0]->as<std::complex<float>>()[0];
  EXPECT_NEAR(y.real(), expected.real(), 1e-6);
  EXPECT_NEAR(y.imag(), expected.imag(), 1e-6);
}

TEST(Unary, RoundingKeepsTheSignOfZero) {
  expect_same(unary("round.out"), each([](double x) { return std::nearbyint(x); }));
  expect_same(unary("trunc.out"), each([](double x) { return std::trunc(x); }));
}

TEST(Unary, SignOfNanIsZeroAndSignbitSeesMinusZero) {
  expect_same(unary("sign.out"), each([](double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0; }));
  const std::vector<double> bits = unary("signbit.out", Elem::Pred);
  for (size_t i = 0; i + 1 < kEdges.size(); ++i) EXPECT_EQ(bits[i] != 0, std::signbit(kEdges[i])) << kEdges[i];
}

TEST(Unary, SignOfUnsignedIntegers) {
  const Array x = array({Elem::U8, {3}}, {0, 1, 255});
  EXPECT_EQ(LayerCall("sign.out").tensor("self", x).result(x.type).values(), (std::vector<double>{0, 1, 1}));
}

TEST(Unary, DigammaHasAPoleOfEitherSignAtZero) {
  const std::vector<double> y = unary("digamma.out");
  EXPECT_EQ(y[0], -kInf);
  EXPECT_EQ(y[1], kInf);
  EXPECT_TRUE(std::isnan(y[3])) << "at -1";
}

TEST(Unary, PolygammaOfNegativeNumbers) {  // psi_n(x) = psi_n(x + 1) - (-1)^n n! / x^(n + 1)
  const Array x = array({Elem::F64, {4}}, {-0.25, 0.75, -8.478, -7.478});
  double factorial = 1;
  for (int n = 1; n <= 4; ++n) {
    factorial *= n;
    const auto y = LayerCall("polygamma.out").set("n", n).tensor("self", x).result(x.type).values();
    for (size_t i : {0, 2}) {
      const double step = std::pow(-1.0, n) * factorial / std::pow(doubles(x)[i], n + 1);
      EXPECT_NEAR(y[i], y[i + 1] - step, 1e-9 * std::fabs(y[i])) << "order " << n << " at " << doubles(x)[i];
    }
  }
}

TEST(Unary, FrexpTakesSubnormalNumbersApart) {
  const Array x = Array::of<float>({Elem::F32, {7}}, {0.0F, -3.0F, 1e-3F, 1e30F, 1e-40F, -1e-45F, 0.5F});
  const auto out = LayerCall("frexp.Tensor_out").tensor("self", x).result(x.type).result(x.type.with(Elem::S32)).run();
  const auto mantissas = out[0]->as<float>();
  const auto exponents = out[1]->as<int32_t>();
  for (size_t i = 0; i < 7; ++i) {
    int exponent = 0;
    EXPECT_EQ(mantissas[i], std::frexp(x.as<float>()[i], &exponent)) << i;
    EXPECT_EQ(exponents[i], exponent) << i;
  }
}

LayerCall of_two(const char* overload, const Array& x, const Array& y) {
  LayerCall call(overload);
  call.tensor("self", x).tensor("other", y).result(x.type);
  return call;
}

TEST(Binary, FloorDivisionOfFloats) {  // c10::div_floor_floating
  const auto [x, y] = pairs({0.0, -0.0, 1, -1, 2.5, -2.5, 7, 0.1, kInf, -kInf, kNan});
  const int64_t n = static_cast<int64_t>(x.size());
  const Array a = array({Elem::F64, {n}}, x), b = array({Elem::F64, {n}}, y);
  std::vector<double> expected;
  for (size_t i = 0; i < x.size(); ++i) {
    const double remainder = std::fmod(x[i], y[i]);
    double q = (x[i] - remainder) / y[i];
    if (remainder != 0 && (y[i] < 0) != (remainder < 0)) q -= 1;
    double down = std::copysign(0.0, x[i] / y[i]);
    if (q != 0) down = q - std::floor(q) > 0.5 ? std::floor(q) + 1 : std::floor(q);
    expected.push_back(y[i] == 0 ? x[i] / y[i] : down);
  }
  expect_same(of_two("floor_divide.out", a, b).values(), expected);
}

TEST(Binary, IntegerDivisionByEveryRule) {
  const std::vector<double> left = {7, -7, 7, -7, 6, -6, 0}, right = {2, 2, -2, -2, 3, 3, 5};
  const Array x = s64({7}, left), y = s64({7}, right);
  EXPECT_EQ(of_two("floor_divide.out", x, y).values(), (std::vector<double>{3, -4, -4, 3, 2, -2, 0}));
  EXPECT_EQ(of_two("div.out_mode", x, y).set("rounding_mode", "trunc").values(),
            (std::vector<double>{3, -3, -3, 3, 2, -2, 0}));
  EXPECT_EQ(of_two("remainder.Tensor_out", x, y).values(), (std::vector<double>{1, 1, -1, -1, 0, 0, 0}));
  EXPECT_EQ(of_two("fmod.Tensor_out", x, y).values(), (std::vector<double>{1, -1, 1, -1, 0, 0, 0}));
  EXPECT_EQ(LayerCall("div.out").tensor("self", x).tensor("other", y).result({Elem::F32, {7}}).values()[1], -3.5);
}

TEST(Binary, TruncatedQuotientsOfBf16AreRoundedFirst) {
  const Array x = array({Elem::BF16, {1}}, {7}), y = array({Elem::BF16, {1}}, {0.70703125});  // 9.9006 rounds to 9.875
  const Array z = array({Elem::BF16, {1}}, {3}), w = array({Elem::BF16, {1}}, {0.30078125});  // 9.974 rounds to 10
  EXPECT_EQ(of_two("div.out_mode", x, y).set("rounding_mode", "trunc").values()[0], 9);
  EXPECT_EQ(of_two("div.out_mode", z, w).set("rounding_mode", "trunc").values()[0], 10);
}

TEST(Binary, IntegerPowersAreModuloTheWidth) {
  const Array x = s64({6}, {-7, 2, -1, 1, 5, 0}), y = s64({6}, {101, 63, -3, -2, -1, 0});
  uint64_t power = 1;
  for (int i = 0; i < 101; ++i) power *= static_cast<uint64_t>(int64_t{-7});
  const auto out =
      LayerCall("pow.Tensor_Tensor_out").tensor("self", x).tensor("exponent", y).result(x.type).run()[0]->as<int64_t>();
  EXPECT_EQ(out, (std::vector<int64_t>{static_cast<int64_t>(power), std::numeric_limits<int64_t>::min(), -1, 1, 0, 1}));
}

TEST(Binary, HypotIsInfiniteBesideNanAndDoesNotOverflow) {
  const Array x = f32({5}, {kInf, kNan, kNan, 3e30, 0}), y = f32({5}, {kNan, -kInf, 1, 4e30, -0.0});
  expect_near(of_two("hypot.out", x, y).values(), {kInf, kInf, kNan, 5e30, 0}, 1e-6);
}

TEST(Binary, ExtremaAndNan) {
  const Array x = f32({3}, {1, kNan, 2}), y = f32({3}, {kNan, 1, 3});
  expect_same(of_two("maximum.out", x, y).values(), {kNan, kNan, 3});
  expect_same(of_two("fmax.out", x, y).values(), {1, 1, 3});
  expect_same(of_two("fmin.out", x, y).values(), {1, 1, 2});
}

TEST(Binary, UpperBoundWinsWhereBoundsCross) {
  const Array x = f32({4}, {-5, 0, 5, kNan});
  const auto out = LayerCall("clamp.out").tensor("self", x).scalar("min", 2).scalar("max", 1).result(x.type).values();
  expect_same(out, {1, 1, 1, kNan});
}

TEST(Binary, AlphaOfOneAddsNoInput) {
  const Array x = f32({2}, {1, 2}), y = f32({2}, {10, 20});
  EXPECT_EQ(of_two("sub.out", x, y).scalar("alpha", 1).values(), (std::vector<double>{-9, -18}));
  EXPECT_EQ(of_two("sub.out", x, y).scalar("alpha", 3).values(), (std::vector<double>{-29, -58}));
}

TEST(Binary, SumInAWiderTypeThanTheDestination) {  // f32.add_(f64): 1 + 2^-30 - 1 is lost only at the end
  const Array x = array({Elem::F32, {1}}, {1}), y = array({Elem::F64, {1}}, {std::ldexp(1.0, -24) * 1.5});
  EXPECT_EQ(of_two("add.out", x, y).scalar("alpha", 1).values()[0], 1 + std::ldexp(1.0, -23));
}

TEST(Binary, GreatestCommonDivisors) {
  const Array x = s64({5}, {12, -18, 0, 7, 0}), y = s64({5}, {18, 12, 5, 13, 0});
  EXPECT_EQ(of_two("gcd.out", x, y).values(), (std::vector<double>{6, 6, 5, 1, 0}));
  EXPECT_EQ(of_two("lcm.out", x, y).values(), (std::vector<double>{36, 36, 0, 91, 0}));
  EXPECT_THROW(of_two("gcd.out", f32({1}, {kNan}), f32({1}, {1})).run(), hlo::Error);
}

TEST(Binary, ShiftsOfUnsignedIntegersAreLogical) {
  const Array x = array({Elem::U8, {2}}, {232, 255}), y = array({Elem::U8, {2}}, {1, 9});
  EXPECT_EQ(of_two("bitwise_right_shift.Tensor_out", x, y).values(), (std::vector<double>{116, 0}));
}

TEST(Compare, IntegersWithAFloatAreComparedAsFloats) {
  const Array x = s64({3}, {0, 1, 2});
  const auto out = LayerCall("gt.Scalar_out").tensor("self", x).scalar("other", 0.5).result({Elem::Pred, {3}}).values();
  EXPECT_EQ(out, (std::vector<double>{0, 1, 1}));
}

TEST(Compare, NanIsUnequalToItself) {
  const Array x = f32({2}, {kNan, 1});
  const auto compared = [&](const char* overload) {
    return LayerCall(overload).tensor("self", x).tensor("other", x).result({Elem::Pred, {2}}).values();
  };
  EXPECT_EQ(compared("eq.Tensor_out"), (std::vector<double>{0, 1}));
  EXPECT_EQ(compared("ne.Tensor_out"), (std::vector<double>{1, 0}));
}

}  // namespace
}  // namespace tpupilot::test
