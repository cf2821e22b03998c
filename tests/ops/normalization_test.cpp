#include <gtest/gtest.h>

#include <cmath>

#include "ops/layer_call.h"

namespace tpupilot::test {
namespace {

using hlo::Dims;
using hlo::Elem;

constexpr double kEps = 1e-5;

// Elements that are normalised together get one number; `group_of` says which.
struct Reference {
  std::vector<double> mean, rstd, variance, y, gx;
};
Reference normalised(const std::vector<double>& x, const std::vector<double>& g, size_t groups,
                     const std::function<size_t(size_t)>& group_of, const std::function<double(size_t)>& weight) {
  Reference r{std::vector<double>(groups), std::vector<double>(groups), std::vector<double>(groups), {}, {}};
  const double count = static_cast<double>(x.size()) / static_cast<double>(groups);
  for (size_t i = 0; i < x.size(); ++i) r.mean[group_of(i)] += x[i] / count;
  for (size_t i = 0; i < x.size(); ++i) r.variance[group_of(i)] += std::pow(x[i] - r.mean[group_of(i)], 2) / count;
  std::vector<double> g_mean(groups), g_normal(groups);
  const auto normal = [&](size_t i) { return (x[i] - r.mean[group_of(i)]) * r.rstd[group_of(i)]; };
  for (size_t k = 0; k < groups; ++k) r.rstd[k] = 1 / std::sqrt(r.variance[k] + kEps);
  for (size_t i = 0; i < x.size(); ++i) {
    g_mean[group_of(i)] += g[i] * weight(i) / count;
    g_normal[group_of(i)] += g[i] * weight(i) * normal(i) / count;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t k = group_of(i);
    r.y.push_back(normal(i) * weight(i));
    r.gx.push_back(r.rstd[k] * (g[i] * weight(i) - g_mean[k] - normal(i) * g_normal[k]));
  }
  return r;
}

const hlo::Type kImages{Elem::F32, {3, 2, 2, 3}};
const hlo::Type kChannels{Elem::F32, {2}};

TEST(BatchNorm, TrainingNormalisesAndMovesTheRunningStatistics) {
  const Array x = irregular(kImages), w = f32({2}, {2, -1});
  const auto channel = [](size_t i) { return i / 6 % 2; };
  const auto ws = doubles(w);
  const Reference r =
      normalised(doubles(x), std::vector<double>(36, 1), 2, channel, [&](size_t i) { return ws[channel(i)]; });
  const auto out = LayerCall("native_batch_norm")
                       .tensor("input", x)
                       .tensor("weight", w)
                       .none("bias")
                       .tensor("running_mean", f32({2}, {1, 2}))
                       .tensor("running_var", f32({2}, {3, 4}))
                       .set("training", true)
                       .scalar("momentum", 0.1)
                       .scalar("eps", kEps)
                       .result(kImages)
                       .result(kChannels)
                       .result(kChannels)
                       .result(kChannels)
                       .result(kChannels)
                       .run();
  expect_near(doubles(*out[0]), r.y);
  expect_near(doubles(*out[1]), r.mean);
  expect_near(doubles(*out[2]), r.rstd);
  expect_near(doubles(*out[3]), {0.9 * 1 + 0.1 * r.mean[0], 0.9 * 2 + 0.1 * r.mean[1]});
  const double unbiased = 18.0 / 17.0;
  expect_near(doubles(*out[4]), {0.9 * 3 + 0.1 * r.variance[0] * unbiased, 0.9 * 4 + 0.1 * r.variance[1] * unbiased});
}

TEST(BatchNorm, EvaluationUsesTheRunningStatisticsAndLeavesThem) {
  const auto out = LayerCall("native_batch_norm")
                       .tensor("input", f32({2, 2}, {3, 4, 5, 6}))
                       .none("weight")
                       .tensor("bias", f32({2}, {0, 1}))
                       .tensor("running_mean", f32({2}, {1, 2}))
                       .tensor("running_var", f32({2}, {4, 1}))
                       .set("training", false)
                       .scalar("momentum", 0.1)
                       .scalar("eps", 0)
                       .result({Elem::F32, {2, 2}})
                       .result({Elem::F32, {0}})
                       .result({Elem::F32, {0}})
                       .result(kChannels)
                       .result(kChannels)
                       .run();
  expect_near(doubles(*out[0]), {1, 3, 2, 5});
  EXPECT_FALSE(out[3] || out[4]);
}

TEST(BatchNorm, OneValueAChannelHasNoUnbiasedVariance) {
  const auto out = LayerCall("native_batch_norm")
                       .tensor("input", f32({1, 1}, {3}))
                       .none("weight")
                       .none("bias")
                       .tensor("running_mean", f32({1}, {0}))
                       .tensor("running_var", f32({1}, {1}))
                       .set("training", true)
                       .scalar("momentum", 0.5)
                       .scalar("eps", kEps)
                       .result({Elem::F32, {1, 1}})
                       .result({Elem::F32, {1}})
                       .result({Elem::F32, {1}})
                       .result({Elem::F32, {1}})
                       .result({Elem::F32, {1}})
                       .run();
  expect_near(doubles(*out[0]), {0});
  expect_near(doubles(*out[4]), {kNan});
}

TEST(BatchNorm, Gradients) {
  const Array x = irregular(kImages), g = irregular(kImages, 0.4), w = f32({2}, {2, -1});
  const auto channel = [](size_t i) { return i / 6 % 2; };
  const auto xs = doubles(x), gs = doubles(g), ws = doubles(w);
  const Reference r = normalised(xs, gs, 2, channel, [&](size_t i) { return ws[channel(i)]; });
  std::vector<double> gw(2), gb(2);
  for (size_t i = 0; i < xs.size(); ++i) {
    gw[channel(i)] += gs[i] * (xs[i] - r.mean[channel(i)]) * r.rstd[channel(i)];
    gb[channel(i)] += gs[i];
  }
  const auto out = LayerCall("native_batch_norm_backward")
                       .tensor("grad_out", g)
                       .tensor("input", x)
                       .tensor("weight", w)
                       .none("running_mean")
                       .none("running_var")
                       .tensor("save_mean", array(kChannels, r.mean))
                       .tensor("save_invstd", array(kChannels, r.rstd))
                       .set("train", true)
                       .scalar("eps", kEps)
                       .mask("output_mask", {true, true, true})
                       .result(kImages)
                       .result(kChannels)
                       .result(kChannels)
                       .run();
  expect_near(doubles(*out[0]), r.gx);
  expect_near(doubles(*out[1]), gw);
  expect_near(doubles(*out[2]), gb);
}

TEST(LayerNorm, ForwardAndGradient) {
  const hlo::Type type{Elem::F32, {3, 5}}, row{Elem::F32, {3, 1}}, weights{Elem::F32, {5}};
  const Array x = irregular(type), g = irregular(type, 0.4), w = irregular(weights, 0.9);
  const auto ws = doubles(w);
  const Reference r =
      normalised(doubles(x), doubles(g), 3, [](size_t i) { return i / 5; }, [&](size_t i) { return ws[i % 5]; });
  const auto out = LayerCall("native_layer_norm")
                       .tensor("input", x)
                       .set("normalized_shape", Dims{5})
                       .tensor("weight", w)
                       .none("bias")
                       .scalar("eps", kEps)
                       .result(type)
                       .result(row)
                       .result(row)
                       .run();
  expect_near(doubles(*out[0]), r.y);
  expect_near(doubles(*out[1]), r.mean);
  const auto back = LayerCall("native_layer_norm_backward")
                        .tensor("grad_out", g)
                        .tensor("input", x)
                        .set("normalized_shape", Dims{5})
                        .tensor("mean", *out[1])
                        .tensor("rstd", *out[2])
                        .tensor("weight", w)
                        .none("bias")
                        .mask("output_mask", {true, false, true})
                        .result(type)
                        .result(weights)
                        .result(weights)
                        .run();
  expect_near(doubles(*back[0]), r.gx);
  EXPECT_FALSE(back[1]);
}

TEST(GroupNorm, ForwardAndGradient) {
  const hlo::Type type{Elem::F32, {2, 4, 3}}, groups{Elem::F32, {2, 2}}, weights{Elem::F32, {4}};
  const Array x = irregular(type), g = irregular(type, 0.4), w = irregular(weights, 0.9);
  const auto ws = doubles(w);
  const Reference r =
      normalised(doubles(x), doubles(g), 4, [](size_t i) { return i / 6; }, [&](size_t i) { return ws[i / 3 % 4]; });
  const auto call = [&](const std::string& overload) {
    LayerCall c(overload);
    return c.tensor("input", x).tensor("weight", w).set("N", 2).set("C", 4).set("HxW", 3).set("group", 2);
  };
  const auto out =
      call("native_group_norm").none("bias").scalar("eps", kEps).result(type).result(groups).result(groups).run();
  expect_near(doubles(*out[0]), r.y);
  const auto back = call("native_group_norm_backward")
                        .tensor("grad_out", g)
                        .tensor("mean", *out[1])
                        .tensor("rstd", *out[2])
                        .mask("output_mask", {true, true, true})
                        .result(type)
                        .result(weights)
                        .result(weights)
                        .run();
  expect_near(doubles(*back[0]), r.gx);
}

}  // namespace
}  // namespace tpupilot::test
