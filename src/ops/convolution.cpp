// convolution_overrideable and its backward: what core's convolution calls on a device that it does not know.
#include "ops/convolution_forms.h"
#include "ops/expr.h"

namespace tpupilot::ops {
namespace {

Window window_of(const Context& c) {
  return {c.integers("stride"), c.integers("padding"), c.integers("dilation"), c.integer("groups")};
}

// bf16 and f16 in f32 on the CPU, where that is as fast and rounds once; other targets have units for the narrow types.
Value operand(Context& c, std::string_view name) {
  const Value x = c.tensor(name);
  return c.b.target().cpu() ? c.b.convert(x, hlo::compute_elem(x.elem())) : x;
}

std::vector<Type> convolution_shape(Context& c) {
  const Type x = c.tensor("input").type, w = c.tensor("weight").type;
  const Window p = window_of(c);
  const Dims extra = c.integers("output_padding");
  const bool transposed = c.boolean("transposed");
  Type y{x.elem, {x.dims[0], transposed ? w.dims[1] * p.groups : w.dims[0]}};
  for (size_t i = 0; i < p.stride.size(); ++i) {
    const int64_t size = x.dims[i + 2], reach = p.dilation[i] * (w.dims[i + 2] - 1);
    y.dims.push_back(transposed ? (size - 1) * p.stride[i] - 2 * p.padding[i] + reach + extra[i] + 1
                                : (size + 2 * p.padding[i] - reach - 1) / p.stride[i] + 1);
  }
  return {y};
}

Values convolution(Context& c) {
  const Value x = operand(c, "input"), w = operand(c, "weight");
  const Dims& out = c.result().dims;
  Expr y = expr(c, c.boolean("transposed") ? image_gradient(c.b, window_of(c), x, w, out)
                                           : convolve(c.b, window_of(c), x, w, out));
  if (!c.given("bias")) return {y};
  const Expr bias = wide(c, "bias");
  return {convert(y, bias.v.elem()) + along(bias, 1, out)};
}

std::vector<Type> backward_shape(Context& c) {
  const Type g = c.tensor("grad_output").type, x = c.tensor("input").type, w = c.tensor("weight").type;
  return {x, w, {g.elem, {g.dims[1]}}};
}

Values convolution_backward(Context& c) {
  const Value g = operand(c, "grad_output");
  const std::vector<bool> wanted = c.booleans("output_mask");
  const bool transposed = c.boolean("transposed");
  const Window p = window_of(c);
  Values results(3);
  if (wanted[0]) {
    const Value w = operand(c, "weight");
    results[0] = transposed ? convolve(c.b, p, g, w, c.result(0).dims) : image_gradient(c.b, p, g, w, c.result(0).dims);
  }
  if (wanted[1]) {
    const Value x = operand(c, "input");
    results[1] =
        transposed ? weight_gradient(c.b, p, x, g, c.result(1).dims) : weight_gradient(c.b, p, g, x, c.result(1).dims);
  }
  if (wanted[2]) {
    Dims all_but_channels{0};
    for (int64_t d = 2; d < g.rank(); ++d) all_but_channels.push_back(d);
    results[2] = c.b.sum(g, all_but_channels);
  }
  return results;
}

}  // namespace

std::vector<Row> convolution_rows() {
  return {
      {.overloads = {"convolution_overrideable"}, .emit = convolution, .shape = convolution_shape},
      {.overloads = {"convolution_backward_overrideable"}, .emit = convolution_backward, .shape = backward_shape},
  };
}

}  // namespace tpupilot::ops
