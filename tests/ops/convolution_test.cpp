// Convolution and its gradients against naive loops, in every form that the emitter knows.
#include <gtest/gtest.h>

#include "ops/layer_call.h"

namespace tpupilot::test {
namespace {

using hlo::Dims;
using hlo::Elem;

struct Case {
  std::string name;
  Dims x, w;
  Dims stride, padding, dilation;
  int64_t groups = 1;
  bool transposed = false;
  Dims output_padding = {};
  Elem elem = Elem::F32;
  bool tpu = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

Dims unflatten(int64_t flat, const Dims& dims) {
  Dims at(dims.size());
  for (size_t i = dims.size(); i-- > 0; flat /= dims[i]) at[i] = flat % dims[i];
  return at;
}
int64_t flatten(const Dims& at, const Dims& dims) {
  int64_t flat = 0;
  for (size_t i = 0; i < dims.size(); ++i) flat = flat * dims[i] + at[i];
  return flat;
}

Dims output_dims(const Case& c) {
  Dims y{c.x[0], c.transposed ? c.w[1] * c.groups : c.w[0]};
  for (size_t i = 0; i < c.stride.size(); ++i) {
    const int64_t reach = c.dilation[i] * (c.w[i + 2] - 1);
    y.push_back(c.transposed ? (c.x[i + 2] - 1) * c.stride[i] - 2 * c.padding[i] + reach + c.output_padding[i] + 1
                             : (c.x[i + 2] + 2 * c.padding[i] - reach - 1) / c.stride[i] + 1);
  }
  return y;
}

// Calls f(image element, weight element, output element) for every product of a plain convolution from `image` to
// `out`; the transposed one is the same triples with image and output swapped.
template <typename F>
void for_each_product(const Case& c, const Dims& image, const Dims& out, F f) {
  const int64_t outs = out[1] / c.groups, ins = image[1] / c.groups;
  for (int64_t o = 0; o < hlo::product(out); ++o) {
    const Dims at = unflatten(o, out);
    for (int64_t k = 0; k < hlo::product(c.w); ++k) {
      const Dims tap = unflatten(k, c.w);
      if (tap[0] != at[1]) continue;
      Dims from{at[0], at[1] / outs * ins + tap[1]};
      bool inside = true;
      for (size_t i = 0; i < c.stride.size(); ++i) {
        from.push_back(at[i + 2] * c.stride[i] - c.padding[i] + tap[i + 2] * c.dilation[i]);
        inside = inside && from.back() >= 0 && from.back() < image[i + 2];
      }
      if (inside) f(flatten(from, image), k, o);
    }
  }
}

LayerCall call(const Case& c, const std::string& overload) {
  LayerCall call(overload);
  call.set("stride", c.stride).set("padding", c.padding).set("dilation", c.dilation).set("transposed", c.transposed);
  call.set("output_padding", c.output_padding).set("groups", c.groups);
  if (c.tpu) call.on({.platform = hlo::Platform::Tpu});
  return call;
}

class Convolution : public testing::TestWithParam<Case> {};

TEST_P(Convolution, ForwardAndGradientsEqualLoops) {
  const Case& c = GetParam();
  const Dims y_dims = output_dims(c);
  const Array x = irregular({c.elem, c.x}), w = irregular({c.elem, c.w}, 0.3),
              bias = irregular({c.elem, {y_dims[1]}}, 0.7);
  const Array g = irregular({c.elem, y_dims}, 1.1);
  const auto xs = doubles(x), ws = doubles(w), bs = doubles(bias), gs = doubles(g);
  std::vector<double> y(gs.size()), gx(xs.size()), gw(ws.size()), gb(bs.size());
  const int64_t area = hlo::product(y_dims) / (y_dims[0] * y_dims[1]);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t channel = i / static_cast<size_t>(area) % bs.size();
    y[i] = bs[channel];
    gb[channel] += gs[i];
  }
  const auto add = [&](int64_t image, int64_t k, int64_t out) {
    const int64_t in = c.transposed ? out : image, to = c.transposed ? image : out;
    y[to] += xs[in] * ws[k];
    gx[in] += gs[to] * ws[k];
    gw[k] += gs[to] * xs[in];
  };
  for_each_product(c, c.transposed ? y_dims : c.x, c.transposed ? c.x : y_dims, add);

  const double tolerance = c.elem == Elem::F64 ? 1e-12 : c.elem == Elem::F32 ? 1e-5 : 1e-2;
  const auto forward =
      call(c, "convolution_overrideable").tensor("input", x).tensor("weight", w).tensor("bias", bias).run();
  EXPECT_EQ(forward[0]->type, (hlo::Type{c.elem, y_dims}));
  expect_near(doubles(*forward[0]), y, tolerance);
  const auto back = call(c, "convolution_backward_overrideable")
                        .tensor("grad_output", g)
                        .tensor("input", x)
                        .tensor("weight", w)
                        .mask("output_mask", {true, true, true})
                        .run();
  expect_near(doubles(*back[0]), gx, tolerance);
  expect_near(doubles(*back[1]), gw, tolerance);
  expect_near(doubles(*back[2]), gb, tolerance);
}

const Case kCases[] = {
    {"plain", {2, 3, 5, 6}, {4, 3, 3, 2}, {1, 1}, {1, 0}, {1, 1}, 1, false, {0, 0}},
    {"strided_dilated", {2, 3, 8, 7}, {4, 3, 3, 2}, {2, 3}, {2, 1}, {1, 2}, 1, false, {0, 0}},
    {"bf16", {2, 3, 5, 5}, {2, 3, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, false, {0, 0}, Elem::BF16},
    {"f64", {1, 2, 5, 5}, {2, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, false, {0, 0}, Elem::F64},
    {"pointwise", {2, 3, 4, 4}, {5, 3, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1, false, {0, 0}},
    {"pointwise_strided", {2, 3, 5, 4}, {5, 3, 1, 1}, {2, 3}, {0, 0}, {1, 1}, 1, false, {0, 0}},
    {"groups", {2, 4, 5, 5}, {6, 2, 3, 3}, {1, 2}, {1, 1}, {1, 1}, 2, false, {0, 0}},
    {"many_groups", {2, 36, 3, 3}, {36, 2, 2, 2}, {1, 1}, {1, 0}, {1, 1}, 18, false, {0, 0}},
    {"depthwise", {2, 4, 8, 8}, {4, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 4, false, {0, 0}},
    {"depthwise_doubled_strided", {2, 3, 7, 6}, {6, 1, 3, 2}, {2, 1}, {1, 0}, {1, 2}, 3, false, {0, 0}},
    {"one_dim", {2, 3, 9}, {4, 3, 4}, {2}, {1}, {2}, 1, false, {0}},
    {"three_dims", {2, 2, 4, 5, 4}, {3, 2, 2, 3, 2}, {2, 1, 1}, {1, 1, 0}, {1, 1, 2}, 1, false, {0, 0, 0}},
    {"transposed", {2, 3, 4, 3}, {3, 4, 3, 3}, {2, 3}, {1, 0}, {1, 1}, 1, true, {1, 2}},
    {"transposed_output_padding_over_stride", {1, 2, 4, 4}, {2, 3, 2, 2}, {1, 1}, {0, 0}, {2, 2}, 1, true, {1, 0}},
    {"transposed_groups", {2, 4, 3, 3}, {4, 3, 2, 2}, {2, 2}, {0, 1}, {1, 1}, 2, true, {0, 0}},
    {"tpu_plain", {2, 3, 6, 5}, {4, 3, 3, 2}, {2, 1}, {1, 1}, {1, 2}, 1, false, {0, 0}, Elem::F32, true},
    {"tpu_groups", {2, 4, 5, 5}, {6, 2, 3, 3}, {1, 2}, {1, 1}, {1, 1}, 2, false, {0, 0}, Elem::F32, true},
};
INSTANTIATE_TEST_SUITE_P(Forms, Convolution, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(ConvolutionEdges, NoOutputChannelsGiveAnEmptyResult) {
  const Case c{"", {2, 4, 5}, {4, 0, 3}, {1}, {0}, {1}, 1, true, {0}};
  const auto y = call(c, "convolution_overrideable")
                     .tensor("input", irregular({Elem::F32, c.x}))
                     .tensor("weight", f32(c.w, {}))
                     .none("bias")
                     .run();
  EXPECT_EQ(y[0]->type.dims, (Dims{2, 0, 7}));
}

TEST(ConvolutionEdges, GradientsThatNobodyAsksForAreUndefined) {
  const Case c{"", {1, 1, 3, 3}, {1, 1, 2, 2}, {1, 1}, {0, 0}, {1, 1}, 1, false, {0, 0}};
  const auto back = call(c, "convolution_backward_overrideable")
                        .tensor("grad_output", f32({1, 1, 2, 2}, {1, 1, 1, 1}))
                        .tensor("input", irregular({Elem::F32, c.x}))
                        .tensor("weight", f32(c.w, {1, 2, 3, 4}))
                        .mask("output_mask", {true, false, false})
                        .run();
  EXPECT_FALSE(back[1] || back[2]);
  expect_near(doubles(*back[0]), {1, 3, 2, 4, 10, 6, 3, 7, 4});
}

}  // namespace
}  // namespace tpupilot::test
