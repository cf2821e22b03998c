#include <gtest/gtest.h>

#include "ops/layer_call.h"

namespace tpupilot::test {
namespace {

using hlo::Elem;

const Array kA = f32({2, 3}, {1, 2, 3, 4, 5, 6}), kB = f32({3, 2}, {1, 0, 2, 1, 0, 3});  // product: 5 11 14 23

TEST(Matmul, Products) {
  expect_near(LayerCall("mm.out").tensor("self", kA).tensor("mat2", kB).result({Elem::F32, {2, 2}}).values(),
              {5, 11, 14, 23});
  expect_near(LayerCall("bmm.out")
                  .tensor("self", f32({2, 1, 2}, {1, 2, 3, 4}))
                  .tensor("mat2", f32({2, 2, 1}, {5, 6, 7, 8}))
                  .result({Elem::F32, {2, 1, 1}})
                  .values(),
              {17, 53});
  expect_near(LayerCall("dot")
                  .tensor("self", f32({3}, {1, 2, 3}))
                  .tensor("tensor", f32({3}, {4, 5, 6}))
                  .result({Elem::F32, {}})
                  .values(),
              {32});
}

TEST(Matmul, AnEmptySumIsZero) {
  expect_near(LayerCall("mm.out")
                  .tensor("self", f32({2, 0}, {}))
                  .tensor("mat2", f32({0, 2}, {}))
                  .result({Elem::F32, {2, 2}})
                  .values(),
              {0, 0, 0, 0});
}

TEST(Matmul, IntegersWrapAndBooleansAreRefused) {
  const Array big = array({Elem::S8, {1, 2}}, {100, 100}), two = array({Elem::S8, {2, 1}}, {1, 1});
  expect_near(LayerCall("mm.out").tensor("self", big).tensor("mat2", two).result({Elem::S8, {1, 1}}).values(), {-56});
  const Array yes = array({Elem::Pred, {1, 1}}, {1});
  EXPECT_THROW(LayerCall("mm.out").tensor("self", yes).tensor("mat2", yes).result({Elem::Pred, {1, 1}}).run(),
               hlo::Error);
}

LayerCall addmm(const Array& self, double beta, double alpha) {
  return LayerCall("addmm.out")
      .tensor("self", self)
      .tensor("mat1", kA)
      .tensor("mat2", kB)
      .scalar("beta", beta)
      .scalar("alpha", alpha)
      .result({Elem::F32, {2, 2}});
}

TEST(Matmul, AddmmScalesBothAndBroadcastsTheBias) {
  expect_near(addmm(f32({2}, {10, 20}), 1, 1).values(), {15, 31, 24, 43});
  expect_near(addmm(f32({2}, {10, 20}), 0.5, 2).values(), {15, 32, 33, 56});
}

TEST(Matmul, BetaZeroDoesNotLookAtSelf) { expect_near(addmm(f32({2}, {kNan, kInf}), 0, 1).values(), {5, 11, 14, 23}); }

TEST(Matmul, NarrowTypesAddTheBiasBeforeRounding) {
  // 1 + 1/256 + 1/256 rounds to 1 + 1/128 once; rounding the product 1 + 1/256 first (to even: 1) would lose it.
  const Array x = array({Elem::BF16, {1, 2}}, {1, 0.0625}), y = array({Elem::BF16, {2, 1}}, {1, 0.0625});
  const auto values = LayerCall("addmm.out")
                          .tensor("self", array({Elem::BF16, {1}}, {1.0 / 256}))
                          .tensor("mat1", x)
                          .tensor("mat2", y)
                          .scalar("beta", 1)
                          .scalar("alpha", 1)
                          .result({Elem::BF16, {1, 1}})
                          .values();
  expect_near(values, {1 + 1.0 / 128}, 1e-9);
}

}  // namespace
}  // namespace tpupilot::test
