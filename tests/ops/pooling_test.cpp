#include <gtest/gtest.h>

#include "ops/layer_call.h"

namespace tpupilot::test {
namespace {

using hlo::Dims;
using hlo::Elem;

struct Plane {  // attributes of a 2-d pooling of one plane
  Dims size, stride, padding{0, 0}, dilation{1, 1};
};

LayerCall call(const std::string& overload, const Plane& p) {
  LayerCall c(overload);
  return c.set("kernel_size", p.size).set("stride", p.stride).set("padding", p.padding).set("ceil_mode", false);
}

struct Pooled {
  std::vector<double> values, indices;
};
Pooled max_pool(const Array& x, const Plane& p, const Dims& out) {
  const auto r = call("max_pool2d_with_indices.out", p)
                     .set("dilation", p.dilation)
                     .tensor("self", x)
                     .result({x.type.elem, out})
                     .result({Elem::S64, out})
                     .run();
  return {doubles(*r[0]), doubles(*r[1])};
}

// ATen's scan: a larger element or a NaN takes over, in row-major order.
Pooled scanned(const std::vector<double>& x, int64_t h, int64_t w, const Plane& p, const Dims& out) {
  Pooled r;
  for (int64_t i = 0; i < out[1]; ++i) {
    for (int64_t j = 0; j < out[2]; ++j) {
      double best = -kInf;
      int64_t place = -1;
      for (int64_t a = 0; a < p.size[0]; ++a) {
        for (int64_t b = 0; b < p.size[1]; ++b) {
          const int64_t y = i * p.stride[0] - p.padding[0] + a * p.dilation[0],
                        z = j * p.stride[1] - p.padding[1] + b * p.dilation[1];
          if (y < 0 || y >= h || z < 0 || z >= w) continue;
          const double v = x[static_cast<size_t>(y * w + z)];
          if (place < 0 || v > best || v != v) best = v, place = y * w + z;
        }
      }
      r.values.push_back(best);
      r.indices.push_back(static_cast<double>(place));
    }
  }
  return r;
}

TEST(MaxPool, FirstOfEqualsLastNanAndNothingFromThePadding) {
  const std::vector<double> x = {2,    2,    -kInf, -kInf, 1,      //
                                 2,    kNan, -kInf, -kInf, 1,      //
                                 kNan, 0,    -3,    -3,    -kInf,  //
                                 1,    5,    5,     -3,    -kInf};
  for (const Plane& p : {Plane{{3, 3}, {1, 2}, {1, 1}}, Plane{{2, 2}, {2, 1}}, Plane{{2, 3}, {1, 1}, {1, 1}, {2, 1}}}) {
    const Dims out{1, (4 + 2 * p.padding[0] - p.dilation[0] * (p.size[0] - 1) - 1) / p.stride[0] + 1,
                   (5 + 2 * p.padding[1] - p.dilation[1] * (p.size[1] - 1) - 1) / p.stride[1] + 1};
    const Pooled got = max_pool(f32({1, 4, 5}, x), p, out), want = scanned(x, 4, 5, p, out);
    expect_near(got.values, want.values);
    expect_near(got.indices, want.indices);
  }
}

TEST(MaxPool, GradientsGoToTheIndices) {
  const auto backward = [](const Plane& p, const Dims& out, const std::vector<double>& indices) {
    const std::vector<double> grad(indices.size(), 1);
    return call("max_pool2d_with_indices_backward.grad_input", p)
        .set("dilation", p.dilation)
        .tensor("grad_output", f32(out, grad))
        .tensor("indices", s64(out, indices))
        .result({Elem::F32, {1, 3, 3}})
        .values();
  };
  expect_near(backward({{2, 2}, {1, 1}}, {1, 2, 2}, {4, 4, 4, 8}), {0, 0, 0, 0, 3, 0, 0, 0, 1});  // windows overlap
  expect_near(backward({{2, 2}, {2, 2}}, {1, 1, 1}, {3}),
              {0, 0, 0, 1, 0, 0, 0, 0, 0});  // a row and a column are left over
}

TEST(AvgPool, CountsThePaddingOrNot) {
  const Array x = f32({1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const auto average = [&](bool with_padding) {
    return call("avg_pool2d.out", {{2, 2}, {2, 2}, {1, 1}})
        .tensor("self", x)
        .set("count_include_pad", with_padding)
        .none("divisor_override")
        .result({Elem::F32, {1, 2, 2}})
        .values();
  };
  expect_near(average(true), {0.25, 1.25, 2.75, 7});
  expect_near(average(false), {1, 2.5, 5.5, 7});
}

TEST(AvgPool, GradientOfOverlappingWindows) {
  const auto grad = call("avg_pool2d_backward.grad_input", {{2, 2}, {1, 1}})
                        .tensor("grad_output", f32({1, 2, 2}, {4, 8, 12, 16}))
                        .set("count_include_pad", true)
                        .none("divisor_override")
                        .result({Elem::F32, {1, 3, 3}})
                        .values();
  expect_near(grad, {1, 3, 2, 4, 10, 6, 3, 7, 4});
}

TEST(AvgPool, LongWindows) {
  const Array x = irregular({Elem::F32, {1, 1, 40}});
  const auto values = doubles(x);
  std::vector<double> want;
  for (size_t i = 0; i < 11; ++i) {
    double total = 0;
    for (size_t t = 0; t < 20; ++t) total += values[2 * i + t];
    want.push_back(total / 20);
  }
  expect_near(call("avg_pool2d.out", {{1, 20}, {1, 2}})
                  .tensor("self", x)
                  .set("count_include_pad", true)
                  .none("divisor_override")
                  .result({Elem::F32, {1, 1, 11}})
                  .values(),
              want);
}

TEST(AdaptiveAvgPool, BinsOverlapWhereTheyDoNotDivide) {
  const Array x = f32({1, 1, 5}, {1, 2, 3, 4, kNan});
  expect_near(LayerCall("_adaptive_avg_pool2d")
                  .tensor("self", x)
                  .set("output_size", Dims{1, 3})
                  .result({Elem::F32, {1, 1, 3}})
                  .values(),
              {1.5, 3, kNan});
  const auto grad = LayerCall("_adaptive_avg_pool2d_backward")
                        .tensor("grad_output", f32({1, 1, 3}, {2, 3, 4}))
                        .tensor("self", x)
                        .result({Elem::F32, {1, 1, 5}})
                        .values();
  expect_near(grad, {1, 2, 1, 3, 2});
}

TEST(Upsample, NearestAndLinear) {
  const Array x = f32({1, 1, 3}, {1, 2, 4});
  const auto nearest = LayerCall("upsample_nearest1d.out")
                           .tensor("self", x)
                           .set("output_size", Dims{5})
                           .none("scales")
                           .result({Elem::F32, {1, 1, 5}})
                           .values();
  expect_near(nearest, {1, 1, 2, 2, 4});
  const auto linear = LayerCall("upsample_linear1d.out")
                          .tensor("self", x)
                          .set("output_size", Dims{5})
                          .set("align_corners", true)
                          .none("scales")
                          .result({Elem::F32, {1, 1, 5}})
                          .values();
  expect_near(linear, {1, 1.5, 2, 3, 4});
  const auto back = LayerCall("upsample_linear1d_backward.grad_input")
                        .tensor("grad_output", f32({1, 1, 5}, {1, 1, 1, 1, 1}))
                        .set("output_size", Dims{5})
                        .set("input_size", Dims{1, 1, 3})
                        .set("align_corners", true)
                        .none("scales")
                        .result({Elem::F32, {1, 1, 3}})
                        .values();
  expect_near(back, {1.5, 2, 1.5});
}

}  // namespace
}  // namespace tpupilot::test
