#include <gtest/gtest.h>

#include "ops/layer_call.h"

namespace tpupilot::test {
namespace {

using hlo::Elem;

const Array kGrid = f32({2, 3}, {1, 2, 3, 4, 5, 6});

TEST(Index, MixesTensorsAndWholeDims) {
  const auto index = [](std::vector<std::optional<Array>> indices, hlo::Dims dims) {
    return LayerCall("index.Tensor_out")
        .tensor("self", kGrid)
        .tensors("indices", std::move(indices))
        .result({Elem::F32, std::move(dims)})
        .values();
  };
  expect_near(index({std::nullopt, s64({2}, {2, -3})}, {2, 2}), {3, 1, 6, 4});
  expect_near(index({s64({3}, {0, 1, -1}), s64({3}, {2, 0, 1})}, {3}), {3, 4, 5});
  expect_near(index({s64({2, 1}, {0, 1}), s64({2}, {0, 2})}, {2, 2}), {1, 3, 4, 6});
  expect_near(index({s64({}, {1})}, {3}), {4, 5, 6});
}

TEST(Index, DimsThatAreNoNeighboursPutTheIndicesInFront) {
  const Array cube = f32({2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  const auto values = LayerCall("index.Tensor_out")
                          .tensor("self", cube)
                          .tensors("indices", {s64({3}, {0, 1, 1}), std::nullopt, s64({3}, {1, 0, 1})})
                          .result({Elem::F32, {3, 2}})
                          .values();
  expect_near(values, {1, 3, 4, 6, 5, 7});
}

LayerCall put(const Array& self, std::vector<std::optional<Array>> indices, const Array& values, bool accumulate) {
  return LayerCall("_index_put_impl_")
      .tensor("self", self)
      .tensors("indices", std::move(indices))
      .tensor("values", values)
      .set("accumulate", accumulate)
      .result(self.type);
}

TEST(IndexPut, ReplacesOrAccumulatesRepeats) {
  expect_near(put(kGrid, {std::nullopt, s64({1}, {-1})}, f32({}, {9}), false).values(), {1, 2, 9, 4, 5, 9});
  expect_near(put(kGrid, {s64({3}, {0, 0, 1})}, f32({3, 1}, {1, 10, 100}), true).values(), {12, 13, 14, 104, 105, 106});
}

TEST(IndexPut, NarrowSumsDoNotRoundAtEachStep) {
  const auto values =
      put(array({Elem::BF16, {1}}, {0}), {s64({600}, std::vector<double>(600, 0))}, array({Elem::BF16, {}}, {1}), true)
          .values();
  expect_near(values, {600}, 1e-9);  // steps of bf16 would stop at 256
}

TEST(IndexPut, SumsOfBooleansAreOrs) {
  expect_near(
      put(array({Elem::Pred, {3}}, {0, 1, 0}), {s64({3}, {0, 1, 1})}, array({Elem::Pred, {}}, {1}), true).values(),
      {1, 1, 0});
}

TEST(Gather, TakesAlongADimAndMayBeSmallerInOthers) {
  const auto gather = [](int dim, const Array& index) {
    return LayerCall("gather.out")
        .tensor("self", kGrid)
        .set("dim", dim)
        .tensor("index", index)
        .result({Elem::F32, index.type.dims})
        .values();
  };
  expect_near(gather(1, s64({2, 2}, {2, 0, 1, 1})), {3, 1, 5, 5});
  expect_near(gather(0, s64({1, 2}, {1, 0})), {4, 2});
  expect_near(gather(-1, s64({2, 0}, {})), {});
}

TEST(Scatter, AddsRepeatsAndLeavesTheRest) {
  const Array index = s64({1, 3}, {0, 0, 1});
  const auto values = LayerCall("scatter_add.out")
                          .tensor("self", kGrid)
                          .set("dim", 1)
                          .tensor("index", index)
                          .tensor("src", f32({2, 3}, {10, 20, 30, 0, 0, 0}))
                          .result(kGrid.type)
                          .values();
  expect_near(values, {31, 32, 3, 4, 5, 6});
}

TEST(Scatter, ReducesWithAndWithoutSelf) {
  const auto reduce = [](const Array& self, const char* how, bool include_self) {
    return LayerCall("scatter_reduce.two_out")
        .tensor("self", self)
        .set("dim", 0)
        .tensor("index", s64({3}, {0, 0, 1}))
        .tensor("src", array(self.type, {-3, -4, 5}))
        .set("reduce", how)
        .set("include_self", include_self)
        .result(self.type)
        .values();
  };
  const Array floats = f32({3}, {1, 1, 7}), integers = s64({3}, {1, 1, 7});
  expect_near(reduce(floats, "sum", true), {-6, 6, 7});
  expect_near(reduce(floats, "amax", true), {1, 5, 7});
  expect_near(reduce(floats, "amax", false), {-3, 5, 7});
  expect_near(reduce(floats, "prod", false), {12, 5, 7});
  expect_near(reduce(floats, "mean", true), {-2, 3, 7});
  expect_near(reduce(integers, "mean", false), {-4, 5, 7});  // -3.5 rounds down
}

TEST(IndexAdd, ScalesAndSumsRepeats) {
  const auto values = LayerCall("index_add.out")
                          .tensor("self", kGrid)
                          .set("dim", 0)
                          .tensor("index", s64({2}, {1, 1}))
                          .tensor("source", f32({2, 3}, {1, 2, 3, 10, 20, 30}))
                          .scalar("alpha", 2)
                          .result(kGrid.type)
                          .values();
  expect_near(values, {1, 2, 3, 26, 49, 72});
}

TEST(IndexReduce, MeansOfSlices) {
  const auto mean = [](bool include_self) {
    return LayerCall("index_reduce.out")
        .tensor("self", kGrid)
        .set("dim", 0)
        .tensor("index", s64({2}, {1, 1}))
        .tensor("source", f32({2, 3}, {1, 2, 3, 3, 4, 5}))
        .set("reduce", "mean")
        .set("include_self", include_self)
        .result(kGrid.type)
        .values();
  };
  expect_near(mean(true), {1, 2, 3, 8.0 / 3, 11.0 / 3, 14.0 / 3});
  expect_near(mean(false), {1, 2, 3, 2, 3, 4});
}

TEST(Masks, FillAndScatter) {
  const Array mask = array({Elem::Pred, {3}}, {1, 0, 1});
  expect_near(LayerCall("masked_fill_.Scalar")
                  .tensor("self", kGrid)
                  .tensor("mask", mask)
                  .scalar("value", -1)
                  .result(kGrid.type)
                  .values(),
              {-1, 2, -1, -1, 5, -1});
  expect_near(LayerCall("masked_scatter_")
                  .tensor("self", kGrid)
                  .tensor("mask", mask)
                  .tensor("source", f32({5}, {10, 20, 30, 40, 50}))
                  .result(kGrid.type)
                  .values(),
              {10, 2, 20, 30, 5, 40});
}

TEST(EmbeddingBackward, SkipsPaddingAndScalesByFrequency) {
  const auto backward = [](int padding, bool scale) {
    return LayerCall("embedding_dense_backward")
        .tensor("grad_output", f32({4, 1}, {1, 2, 4, 8}))
        .tensor("indices", s64({4}, {0, 2, 2, 1}))
        .set("num_weights", 3)
        .set("padding_idx", padding)
        .set("scale_grad_by_freq", scale)
        .result({Elem::F32, {3, 1}})
        .values();
  };
  expect_near(backward(-1, false), {1, 8, 6});
  expect_near(backward(1, false), {1, 0, 6});
  expect_near(backward(-1, true), {1, 8, 3});
}

TEST(Take, CountsFromTheEndOfTheFlatTensor) {
  expect_near(
      LayerCall("take").tensor("self", kGrid).tensor("index", s64({2}, {-1, 3})).result({Elem::F32, {2}}).values(),
      {6, 4});
  expect_near(LayerCall("put_")
                  .tensor("self", kGrid)
                  .tensor("index", s64({2}, {0, 0}))
                  .tensor("source", f32({2}, {1, 1}))
                  .set("accumulate", true)
                  .result(kGrid.type)
                  .values(),
              {3, 2, 3, 4, 5, 6});
}

}  // namespace
}  // namespace tpupilot::test
