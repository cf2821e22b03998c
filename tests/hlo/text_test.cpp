// The text of modules, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "hlo/builder.h"

namespace tpupilot::hlo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "(no error)";
}

TEST(Text, OfAModule) {
  Builder b;
  const Value x = b.parameter({Elem::F32, {2, 3}});
  const Value y = b.add(x, b.constant(1, x.type));
  EXPECT_EQ(b.module({y, x}), R"(module @m {
func.func @main(%a0: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %v0 = "stablehlo.constant"() <{value = dense<0x3F800000> : tensor<2x3xf32>}> : () -> tensor<2x3xf32>
  %v1 = "stablehlo.add"(%a0, %v0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  "func.return"(%v1, %a0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> ()
}
}
)");
  EXPECT_EQ(b.op_count(), 2);
}

TEST(Text, SmallElementwiseProgramsAreToldFromOthers) {
  const auto small = [](const std::function<void(Builder&)>& emit) {
    Builder b;
    emit(b);
    return b.small_elementwise();
  };
  EXPECT_TRUE(small([](Builder& b) { b.add(b.parameter({Elem::F32, {128}}), b.parameter({Elem::F32, {128}})); }));
  EXPECT_FALSE(small([](Builder& b) { b.add(b.parameter({Elem::F32, {129}}), b.parameter({Elem::F32, {129}})); }));
  EXPECT_FALSE(small([](Builder& b) {  // 3 x 64 elements
    const Value x = b.parameter({Elem::F32, {64}});
    b.mul(b.add(x, x), b.neg(x));
  }));
  EXPECT_FALSE(small([](Builder& b) {
    const Value x = b.parameter({Elem::F32, {2, 2}});
    b.dot_general(x, x, {}, {}, {1}, {0});
  }));
  EXPECT_FALSE(small([](Builder& b) {
    b.sort({b.parameter({Elem::F32, {4}})}, 0, [&](const Values& v) { return b.compare(Direction::LT, v[0], v[1]); });
  }));
}

TEST(Text, OfARegion) {
  Builder b;
  const Value x = b.parameter({Elem::F32, {2, 3}});
  b.reduce("stablehlo.add", x, b.zeros({Elem::F32, {}}), {-1});
  EXPECT_THAT(b.module({}), HasSubstr(R"(
  %v4 = "stablehlo.reduce"(%a0, %v0) <{dimensions = array<i64: 1>}> ({
^bb0(%v1: tensor<f32>, %v2: tensor<f32>):
  %v3 = "stablehlo.add"(%v1, %v2) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  "stablehlo.return"(%v3) : (tensor<f32>) -> ()
}) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
)"));
}

TEST(Text, OfSeveralResults) {
  Builder b;
  const Value x = b.parameter({Elem::F32, {3}}), i = b.iota({Elem::S32, {3}}, 0);
  const Values sorted = b.sort({x, i}, 0, [&](const Values& v) { return b.compare(Direction::LT, v[0], v[1]); });
  const std::string text = b.module(sorted);
  EXPECT_THAT(text, HasSubstr("%v6:2 = \"stablehlo.sort\"(%a0, %v0) <{dimension = 0 : i64, is_stable = true}> ({"));
  EXPECT_THAT(text, HasSubstr("^bb0(%v1: tensor<f32>, %v2: tensor<f32>, %v3: tensor<i32>, %v4: tensor<i32>):"));
  EXPECT_THAT(text, HasSubstr("\"func.return\"(%v6#0, %v6#1) : (tensor<3xf32>, tensor<3xi32>) -> ()"));
}

TEST(Text, ATargetThatIsNoCpuGetsThePlainReduction) {
  Builder b(Target{.platform = Platform::Tpu});
  const Value x = b.parameter({Elem::BF16, {64, 8}});
  b.sum(x, {0});
  b.amax(x, {0});
  EXPECT_THAT(b.module({}), AllOf(HasSubstr("stablehlo.reduce"), Not(HasSubstr("stablehlo.slice"))));
}

TEST(Literal, RoundsToNearestEven) {
  EXPECT_EQ(literal(1.0, Elem::F64), "0x3FF0000000000000");
  EXPECT_EQ(literal(-0.0, Elem::F32), "0x80000000");
  EXPECT_EQ(literal(1 + 0x1p-8, Elem::BF16), "0x3F80");            // a tie goes to even, down
  EXPECT_EQ(literal(1 + 0x3p-8, Elem::BF16), "0x3F82");            // and up
  EXPECT_EQ(literal(1 + 0x1p-8 + 0x1p-40, Elem::BF16), "0x3F81");  // by way of f32 this would be a tie
  EXPECT_EQ(literal(1 + 0x1p-11, Elem::F16), "0x3C00");
  EXPECT_EQ(literal(1 + 0x1p-11 + 0x1p-40, Elem::F16), "0x3C01");
  EXPECT_EQ(literal(65519.999, Elem::F16), "0x7BFF");
  EXPECT_EQ(literal(65520, Elem::F16), "0x7C00");  // halfway past the largest: infinity
  EXPECT_EQ(literal(-1e300, Elem::BF16), "0xFF80");
  EXPECT_EQ(literal(0x1p-24, Elem::F16), "0x0001");  // the smallest subnormal
  EXPECT_EQ(literal(0x1p-25, Elem::F16), "0x0000");
  EXPECT_EQ(literal(0x1.8p-25, Elem::F16), "0x0001");
  EXPECT_EQ(literal(0x1.FFCp-15, Elem::F16), "0x0400");  // rounds up into the normal numbers
  EXPECT_EQ(literal(std::nan(""), Elem::BF16), "0x7FC0");
  EXPECT_EQ(literal(-HUGE_VAL, Elem::F16), "0xFC00");
}

TEST(Literal, OfIntegersMustBeExact) {
  EXPECT_EQ(literal(-128, Elem::S8), "-128");
  EXPECT_EQ(literal(0x1p63, Elem::U64), "9223372036854775808");
  EXPECT_EQ(literal(1, Elem::Pred), "true");
  EXPECT_EQ(literal(2, Elem::C64), "(0x40000000, 0x00000000)");
  EXPECT_EQ(error_of([] { literal(128, Elem::S8); }), "[constant] 128 is not a value of i8");
  EXPECT_EQ(error_of([] { literal(0.5, Elem::S64); }), "[constant] 0.5 is not a value of i64");
  EXPECT_EQ(error_of([] { literal(-1, Elem::U64); }), "[constant] -1 is not a value of ui64");
  EXPECT_EQ(error_of([] { literal(2, Elem::Pred); }), "[constant] 2 is not a value of i1");
  EXPECT_EQ(error_of([] { literal(std::nan(""), Elem::S32); }), "[constant] nan is not a value of i32");
  EXPECT_EQ(error_of([] { literal(0x1p63, Elem::S64); }), "[constant] 9.2233720368547758e+18 is not a value of i64");
}

TEST(Constant, ALargeIntegerIsRoundedOnce) {
  Builder b;
  b.constant_int((int64_t{1} << 62) + (int64_t{1} << 54) + 1, {Elem::BF16, {}});  // just above a tie of bf16
  b.constant_int(std::numeric_limits<int64_t>::min(), {Elem::S64, {}});
  b.constant(0, {Elem::F32, {0, 3}});
  b.constant_ints({1, 0}, Elem::Pred);
  const std::string text = b.module({});
  EXPECT_THAT(text, HasSubstr("dense<0x5E81> : tensor<bf16>"));
  EXPECT_THAT(text, HasSubstr("dense<-9223372036854775808> : tensor<i64>"));
  EXPECT_THAT(text, HasSubstr("dense<> : tensor<0x3xf32>"));
  EXPECT_THAT(text, HasSubstr("dense<[true, false]> : tensor<2xi1>"));
}

TEST(Refuses, ValuesThatDoNotFit) {
  Builder b;
  const Value x = b.parameter({Elem::F32, {2, 3}}), i = b.parameter({Elem::S32, {2, 3}}),
              p = b.parameter({Elem::Pred, {2, 3}});
  const Value s = b.parameter({Elem::F32, {}});
  const auto expect = [](auto f, const std::string& text) { EXPECT_EQ(error_of(f), text); };
  expect([&] { b.add(x, i); }, "[add] operands of different types: tensor<2x3xf32> and tensor<2x3xi32>");
  expect([&] { b.unary("stablehlo.tanh", i); }, "[tanh] does not take tensor<2x3xi32>");
  expect([&] { b.sub(p, p); }, "[subtract] does not take tensor<2x3xi1>");
  expect([&] { b.logical_and(x, x); }, "[and] does not take tensor<2x3xf32>");
  expect([&] { b.neg(Value{}); }, "[negate] operand 0 is no value (default-constructed)");
  expect([&] { b.op("stablehlo.add", {x, {}}, x.type); }, "[add] operand 1 is no value (default-constructed)");
  expect([&] { b.select(x, x, x); }, "[select] a predicate of type tensor<2x3xf32> for tensor<2x3xf32>");
  expect([&] { b.broadcast(x, {2, 4}); }, "[broadcast] tensor<2x3xf32> to [2, 4] by dimensions [0, 1]");
  expect([&] { b.broadcast(x, {3}); }, "[broadcast] tensor<2x3xf32> to fewer dimensions [3]");
  expect([&] { b.broadcast_in_dim(x, {2, 3, 3}, {0}); }, "[broadcast] tensor<2x3xf32> to [2, 3, 3] by dimensions [0]");
  expect([&] { b.reshape(x, {5}); }, "[reshape] tensor<2x3xf32> to [5]");
  expect([&] { b.transpose(x, {0, 0}); }, "[transpose] [0, 0] is no permutation of the dimensions of tensor<2x3xf32>");
  expect([&] { b.slice_dim(x, 1, 2, 4); }, "[slice] 2 to 4 by 1 at dimension 1 of tensor<2x3xf32>");
  expect([&] { b.slice_dim(x, 2, 0, 1); }, "[slice_dim] dimension 2 of tensor<2x3xf32>");
  expect([&] { b.pad(x, s, {0, -4}, {0, 0}, {0, 0}); }, "[pad] -4, 0, interior 0 at dimension 1 of tensor<2x3xf32>");
  expect([&] { b.concatenate({x, s}, 0); }, "[concatenate] tensor<f32> with tensor<2x3xf32> at dimension 0");
  expect([&] { b.sum(x, {0, -2}); }, "[sum] repeated dimension in [0, -2]");
  expect([&] { b.sum(x, {2}); }, "[sum] dimension 2 is out of range for tensor<2x3xf32>");
  expect([&] { b.sum(p, {0}); }, "[sum] of tensor<2x3xi1> is undefined; convert it first");
  expect([&] { b.bitcast(x, {Elem::F64, {2}}); }, "[bitcast] tensor<2x3xf32> to tensor<2xf64>");
  expect([&] { b.squeeze(x, 0); }, "[squeeze] dimension 0 of tensor<2x3xf32> is not of size 1");
  expect([&] { b.keep_dims(x, {2, 3, 4}, {1}); }, "[keep_dims] tensor<2x3xf32> is not [2, 3, 4] reduced over [1]");
  EXPECT_THAT(error_of([&] { b.dot_general(x, x, {}, {}, {1}, {0}); }),
              HasSubstr("[dot_general] dimensions do not match"));
  EXPECT_EQ(b.op_count(), 0);
}

TEST(Refuses, AConvolutionWhoseShapesDoNotFit) {
  Builder b;
  const Value x = b.parameter({Elem::F32, {2, 3, 8, 8}}), k = b.parameter({Elem::F32, {6, 3, 3, 3}});
  Convolution c{{2, 2}, {{1, 1}, {1, 1}}, {1, 1}, {1, 1}, "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"};
  b.convolution(x, k, c, {2, 6, 4, 4});
  EXPECT_THAT(error_of([&] { b.convolution(x, k, c, {2, 6, 5, 4}); }),
              HasSubstr("[convolution] of tensor<2x3x8x8xf32>"));
  EXPECT_THAT(error_of([&] { b.convolution(k, k, c, {2, 6, 4, 4}); }), HasSubstr("the shapes do not fit"));
  c.dimension_numbers = "[b, f, 0]x[o, i, 0, 1]->[b, f, 0, 1]";
  EXPECT_THAT(error_of([&] { b.convolution(x, k, c, {2, 6, 4, 4}); }), HasSubstr("dimension numbers [b, f, 0]x"));
}

TEST(Refuses, ACaptureWhereStableHloHasNone) {
  Builder b;
  const Value x = b.parameter({Elem::F32, {3}}), outside = b.constant(2, {Elem::F32, {}});
  const auto less = [&](const Values& v) { return b.compare(Direction::LT, b.mul(v[0], outside), v[1]); };
  EXPECT_EQ(error_of([&] { b.sort({x}, 0, less); }),
            "[multiply] operand %v0 comes from outside of a region that may not capture; pass it as an operand");
  EXPECT_THAT(error_of([&] { b.region({x.type}, [&](const Values&) { return Values{x}; }); }),
              HasSubstr("operand %a0"));
  // An error inside a region leaves the module's text as it was before.
  EXPECT_THAT(b.module({x}), Not(HasSubstr("multiply")));
  b.add(outside, outside);
  EXPECT_THAT(b.module({x}), HasSubstr("\"stablehlo.add\"(%v0, %v0)"));
}

}  // namespace
}  // namespace tpupilot::hlo
