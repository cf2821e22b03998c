// Losses, softmax and activation functions: the points where a formula alone would go wrong.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/layer_call.h"

namespace tpupilot::test {
namespace {

using hlo::Elem;

const hlo::Type kScalar{Elem::F32, {}};

std::vector<std::vector<double>> all(const std::vector<std::optional<Array>>& arrays) {
  std::vector<std::vector<double>> values;
  for (const auto& a : arrays) values.push_back(doubles(a.value()));
  return values;
}

LayerCall nll(const Array& target, int reduction, int ignored) {
  LayerCall c("nll_loss_forward.output");
  c.tensor("self", f32({2, 3}, {-1, -2, -3, -4, -5, kNan}))
      .tensor("target", target)
      .set("reduction", reduction)
      .set("ignore_index", ignored);
  return c.result(reduction == 0 ? hlo::Type{Elem::F32, {2}} : kScalar).result(kScalar);
}

TEST(Nll, ReductionsWeightsAndIgnoredLabels) {
  EXPECT_EQ(all(nll(s64({2}, {2, 0}), 1, -100).none("weight").run()), (std::vector<std::vector<double>>{{3.5}, {2}}));
  EXPECT_EQ(all(nll(s64({2}, {2, 0}), 1, -100).tensor("weight", f32({3}, {1, 9, 3})).run()),
            (std::vector<std::vector<double>>{{3.25}, {4}}));
  EXPECT_EQ(all(nll(s64({2}, {1, 2}), 0, 2).none("weight").run()),
            (std::vector<std::vector<double>>{{2, 0}, {0}}));  // the NaN is ignored
  EXPECT_EQ(all(nll(s64({2}, {1, 0}), 2, -100).none("weight").run()), (std::vector<std::vector<double>>{{6}, {2}}));
}

TEST(Nll, AllIgnoredIsNanWithGradientZero) {
  const Array target = s64({2}, {0, 0});
  const auto out = nll(target, 1, 0).none("weight").run();
  expect_near(doubles(*out[0]), {kNan});
  const auto grad = LayerCall("nll_loss_backward.grad_input")
                        .tensor("grad_output", f32({}, {1}))
                        .tensor("self", f32({2, 3}, {1, 2, 3, 4, 5, 6}))
                        .tensor("target", target)
                        .none("weight")
                        .set("reduction", 1)
                        .set("ignore_index", 0)
                        .tensor("total_weight", *out[1])
                        .result({Elem::F32, {2, 3}})
                        .values();
  expect_near(grad, {0, 0, 0, 0, 0, 0});
}

TEST(Nll, GradientOfTheMean) {
  const auto grad = LayerCall("nll_loss_backward.grad_input")
                        .tensor("grad_output", f32({}, {2}))
                        .tensor("self", f32({2, 3}, {1, 2, 3, 4, 5, 6}))
                        .tensor("target", s64({2}, {1, 2}))
                        .tensor("weight", f32({3}, {9, 1, 3}))
                        .set("reduction", 1)
                        .set("ignore_index", -100)
                        .tensor("total_weight", f32({}, {4}))
                        .result({Elem::F32, {2, 3}})
                        .values();
  expect_near(grad, {0, -0.5, 0, 0, 0, -1.5});
}

TEST(Loss, ElementWiseOnes) {
  const auto loss = [](const std::string& overload, int reduction) {
    LayerCall c(overload);
    c.tensor("self", f32({2}, {1, 4})).tensor("target", f32({2}, {0.5, 1})).set("reduction", reduction).result(kScalar);
    return c;
  };
  expect_near(loss("mse_loss.out", 1).values(), {(0.25 + 9) / 2});
  expect_near(loss("smooth_l1_loss.out", 2).scalar("beta", 1).values(), {0.125 + 2.5});
  expect_near(loss("smooth_l1_loss.out", 2).scalar("beta", 0).values(), {3.5});
  expect_near(loss("huber_loss", 2).scalar("delta", 2).values(), {0.125 + 4});
}

TEST(Loss, BinaryCrossEntropyStopsAtAHundred) {
  const auto value = LayerCall("binary_cross_entropy")
                         .tensor("self", f32({3}, {0, 1, 0.5}))
                         .tensor("target", f32({3}, {1, 0, 1}))
                         .none("weight")
                         .set("reduction", 0)
                         .result({Elem::F32, {3}})
                         .values();
  expect_near(value, {100, 100, std::log(2.0)});
}

TEST(Softmax, SurvivesInfinitiesAndGivesNanForRowsOfThem) {
  const Array x = f32({3, 2}, {1000, 1000 + std::log(3.0), -kInf, 0, -kInf, -kInf});
  expect_near(
      LayerCall("_softmax.out").tensor("self", x).set("dim", -1).set("half_to_float", false).result(x.type).values(),
      {0.25, 0.75, 0, 1, kNan, kNan}, 1e-4);
  expect_near(LayerCall("_log_softmax.out")
                  .tensor("self", f32({}, {3}))
                  .set("dim", 0)
                  .set("half_to_float", false)
                  .result(kScalar)
                  .values(),
              {0});
}

TEST(Softmax, Gradients) {
  const Array y = f32({1, 2}, {0.25, 0.75}), g = f32({1, 2}, {1, 2});
  const auto backward = [&](const std::string& overload, const Array& output) {
    return LayerCall(overload).tensor("grad_output", g).tensor("output", output).set("dim", 1).result(y.type).values();
  };
  expect_near(backward("_softmax_backward_data.out", y), {0.25 * (1 - 1.75), 0.75 * (2 - 1.75)});
  expect_near(backward("_log_softmax_backward_data.out", f32({1, 2}, {std::log(0.25), std::log(0.75)})),
              {1 - 0.75, 2 - 2.25});
}

const Array kPoints = f32({7}, {kNan, -kInf, -100, -1, 0, 1, 100});

LayerCall activation(const std::string& overload) {
  LayerCall c(overload);
  return c.tensor("self", kPoints).result(kPoints.type);
}

TEST(Activation, KeepsNanAndDoesNotOverflow) {
  expect_near(activation("relu").values(), {kNan, 0, 0, 0, 0, 1, 100});
  expect_near(activation("softplus.out").scalar("beta", 1).scalar("threshold", 200).values(),
              {kNan, 0, std::exp(-100), std::log1p(std::exp(-1)), std::log(2.0), std::log1p(std::exp(1)), 100});
  expect_near(activation("elu.out").scalar("alpha", 2).scalar("scale", 3).scalar("input_scale", 1).values(),
              {kNan, -6, -6, 6 * std::expm1(-1), 0, 3, 300});
  expect_near(activation("hardtanh").scalar("min_val", 1).scalar("max_val", -1).values(),
              {kNan, -1, -1, -1, -1, -1, -1});  // the maximum wins
  expect_near(activation("threshold.out").integer_scalar("threshold", 0).integer_scalar("value", 9).values(),
              {kNan, 9, 9, 9, 9, 1, 100});
  expect_near(activation("softshrink.out").scalar("lambd", 1).values(), {kNan, -kInf, -99, 0, 0, 0, 99});
}

TEST(Activation, GeluInBothForms) {
  const double x = 1, cdf = 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
  expect_near({activation("gelu.out").set("approximate", "none").values()[5]}, {cdf});
  const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  expect_near({activation("gelu.out").set("approximate", "tanh").values()[5]}, {0.5 * x * (1 + std::tanh(inner))});
  const auto grad = activation("gelu_backward.grad_input")
                        .tensor("grad_output", f32({7}, {1, 1, 1, 1, 1, 2, 1}))
                        .set("approximate", "none")
                        .values();
  expect_near({grad[5]}, {2 * (cdf + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI))});
  EXPECT_THROW(activation("gelu.out").set("approximate", "erf").run(), hlo::Error);
}

}  // namespace
}  // namespace tpupilot::test
