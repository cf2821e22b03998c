// Activation functions and their gradients. All are element-wise and computed in the opmath type; the comments give
// ATen's rule where the formula alone does not.
#include <cmath>
#include <numbers>

#include "ops/expr.h"

namespace tpupilot::ops {
namespace {

constexpr double kSqrtHalf = std::numbers::sqrt2 / 2;
constexpr double kGeluBeta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
constexpr double kGeluKappa = 0.044715;

// A row whose emitter is one formula.
Row row(std::vector<std::string_view> overloads, Expr (*formula)(Context&)) {
  return {.overloads = std::move(overloads), .emit = [formula](Context& c) { return Values{formula(c)}; }};
}

Expr self(Context& c) { return wide_like_result(c, "self"); }
Expr grad(Context& c) { return wide_like_result(c, c.has_argument("grad_output") ? "grad_output" : "grad_out"); }

Expr conjugate(const Expr& x) {
  if (!hlo::is_complex(x.v.elem())) return x;
  return apply("stablehlo.complex", apply("stablehlo.real", x), -apply("stablehlo.imag", x));
}

// log(1 + exp(-|x|)), whose argument never overflows.
Expr log1p_exp_minus_abs(const Expr& x) { return log1p(exp(-abs(x))); }

Expr relu(Context& c) { return maximum(self(c), 0); }
Expr threshold(Context& c) {
  const Expr x = self(c);
  return where(x <= wide_scalar(c, "threshold"), wide_scalar(c, "value"), x);
}
Expr threshold_backward(Context& c) { return where(self(c) <= wide_scalar(c, "threshold"), 0, grad(c)); }

bool gelu_by_tanh(Context& c) {
  const std::string approximate = c.string("approximate");
  if (approximate == "none" || approximate == "tanh") return approximate == "tanh";
  throw hlo::Error("[gelu] approximate argument must be either none or tanh, not '" + approximate + "'");
}
Expr gelu(Context& c) {
  const Expr x = self(c);
  if (!gelu_by_tanh(c)) return x * 0.5 * (1 + erf(x * kSqrtHalf));
  return 0.5 * x * (1 + tanh(kGeluBeta * (x + kGeluKappa * x * x * x)));
}
Expr gelu_backward(Context& c) {
  const Expr x = self(c), g = grad(c);
  if (!gelu_by_tanh(c)) {
    const Expr cdf = 0.5 * (1 + erf(x * kSqrtHalf));
    const Expr pdf = exp(x * x * -0.5) * (kGeluBeta / 2);  // 1 / sqrt(2 pi)
    return g * (cdf + x * pdf);
  }
  const Expr square = x * x;
  const Expr t = tanh(kGeluBeta * (x + kGeluKappa * square * x));
  const Expr inner = kGeluBeta * (1 + 3 * kGeluKappa * square);
  return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner);
}

Expr silu(Context& c) {
  const Expr x = self(c);
  return x * logistic(x);
}
Expr silu_backward(Context& c) {
  const Expr x = self(c), s = logistic(x);
  return grad(c) * conjugate(s * (1 + x * (1 - s)));
}
Expr mish(Context& c) {
  const Expr x = self(c);
  return x * tanh(maximum(x, 0) + log1p_exp_minus_abs(x));
}
Expr mish_backward(Context& c) {
  const Expr x = self(c);
  const Expr t = tanh(maximum(x, 0) + log1p_exp_minus_abs(x));
  return grad(c) * (t + x * logistic(x) * (1 - t * t));
}
Expr sigmoid_backward(Context& c) {
  const Expr y = wide_like_result(c, "output");
  return grad(c) * conjugate((1 - y) * y);
}
Expr tanh_backward(Context& c) {
  const Expr y = wide_like_result(c, "output");
  return grad(c) * conjugate(1 - y * y);
}

Expr logit_backward(Context& c) {  // outside of the open interval: NaN, or 0 where self was clamped
  const Expr x = self(c), g = grad(c) / (x * (1 - x));
  if (!c.given("eps")) return where((x < 0) | (x > 1), std::numeric_limits<double>::quiet_NaN(), g);
  const Expr eps = wide_scalar(c, "eps");
  return where((x < eps) | (x > 1 - eps), 0, g);
}

Expr elu(Context& c) {
  const Expr x = self(c), scale = wide_scalar(c, "scale");
  return where(x <= 0, expm1(x * wide_scalar(c, "input_scale")) * (wide_scalar(c, "alpha") * scale), x * scale);
}
Expr elu_backward(Context& c) {
  const Expr g = grad(c), y = wide_like_result(c, "self_or_result");
  const Expr scale = wide_scalar(c, "scale"), input_scale = wide_scalar(c, "input_scale"),
             negative = wide_scalar(c, "alpha") * scale;
  const Expr slope =
      c.boolean("is_result") ? input_scale * (y + negative) : input_scale * negative * exp(y * input_scale);
  return where(y <= 0, g * slope, g * scale);
}
Expr leaky_relu(Context& c) {
  const Expr x = self(c);
  return where(x > 0, x, x * wide_scalar(c, "negative_slope"));
}
Expr leaky_relu_backward(Context& c) {
  const Expr g = grad(c);
  return where(self(c) > 0, g, g * wide_scalar(c, "negative_slope"));
}

Expr hardtanh(Context& c) { return minimum(maximum(self(c), wide_scalar(c, "min_val")), wide_scalar(c, "max_val")); }
Expr hardtanh_backward(Context& c) {
  const Expr x = self(c);
  return where((x <= wide_scalar(c, "min_val")) | (x >= wide_scalar(c, "max_val")), 0, grad(c));
}
Expr hardsigmoid(Context& c) { return minimum(maximum(self(c) + 3, 0), 6) / 6; }
Expr hardsigmoid_backward(Context& c) {
  const Expr x = self(c);
  return where((x > -3) & (x < 3), grad(c) / 6, 0);
}
Expr hardswish(Context& c) {
  const Expr x = self(c);
  return x * minimum(maximum(x + 3, 0), 6) / 6;
}
Expr hardswish_backward(Context& c) {
  const Expr x = self(c), g = grad(c);
  return where(x <= -3, 0, where(x < 3, g * (x / 3 + 0.5), g));
}
Expr hardshrink(Context& c) {
  const Expr x = self(c), lambd = wide_scalar(c, "lambd");
  return where((x >= -lambd) & (x <= lambd), 0, x);
}
Expr softshrink(Context& c) {  // NaN stays NaN: the middle is x * 0
  const Expr x = self(c), lambd = wide_scalar(c, "lambd");
  return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, x * 0));
}
Expr shrink_backward(Context& c) {
  const Expr x = self(c), lambd = wide_scalar(c, "lambd");
  return where((x >= -lambd) & (x <= lambd), 0, grad(c));
}

Expr softplus(Context& c) {
  const Expr x = self(c), beta = wide_scalar(c, "beta"), z = x * beta;
  return where(z > wide_scalar(c, "threshold"), x, (maximum(z, 0) + log1p_exp_minus_abs(z)) / beta);
}
Expr softplus_backward(Context& c) {
  const Expr g = grad(c), z = self(c) * wide_scalar(c, "beta");
  return where(z > wide_scalar(c, "threshold"), g, g * logistic(z));
}

Values log_sigmoid_forward(Context& c) {
  const Expr x = self(c), z = exp(-abs(x));
  const Expr buffer = c.result(1).numel() == 0 ? expr(c, c.b.zeros(c.result(1))) : z;
  return {minimum(x, 0) - log1p(z), buffer};
}
Expr log_sigmoid_backward(Context& c) {  // sigmoid(-x), without a difference of near equals
  return grad(c) * logistic(-self(c));
}

Expr prelu(Context& c) {
  const Expr x = self(c);
  return where(x > 0, x, x * wide_like_result(c, "weight"));
}
Values prelu_backward(Context& c) {
  const Expr x = self(c), g = grad(c);
  return {where(x > 0, g, g * wide_like_result(c, "weight")), where(x > 0, 0, x * g)};
}

// The two halves of self along dim.
std::pair<Expr, Expr> halves(Context& c) {
  const Expr x = wide(c, "self");
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), x.v.rank()), n = x.v.dims().at(static_cast<size_t>(dim));
  return {expr(c, c.b.slice_dim(x, dim, 0, n / 2)), expr(c, c.b.slice_dim(x, dim, n / 2, n))};
}
Expr glu(Context& c) {
  const auto [a, gate] = halves(c);
  return a * logistic(gate);
}
Expr glu_backward(Context& c) {
  const auto [a, gate] = halves(c);
  const Expr g = wide(c, "grad_output"), s = logistic(gate);
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), a.v.rank());
  return expr(c, c.b.concatenate({g * s, g * a * s * (1 - s)}, dim));
}

}  // namespace

std::vector<Row> activation_rows() {
  return {
      row({"relu", "relu_"}, relu),
      row({"threshold.out"}, threshold),
      row({"threshold_backward.grad_input"}, threshold_backward),
      row({"gelu.out"}, gelu),
      row({"gelu_backward.grad_input"}, gelu_backward),
      row({"silu.out"}, silu),
      row({"silu_backward", "silu_backward.grad_input"}, silu_backward),
      row({"mish.out"}, mish),
      {.overloads = {"mish_backward"},
       .emit = [](Context& c) { return Values{mish_backward(c)}; },
       .shape = [](Context& c) { return std::vector{c.tensor("self").type}; }},  // it has no Meta kernel
      row({"sigmoid_backward.grad_input"}, sigmoid_backward),
      row({"tanh_backward.grad_input"}, tanh_backward),
      row({"logit_backward.grad_input"}, logit_backward),
      row({"elu.out"}, elu),
      row({"elu_backward.grad_input"}, elu_backward),
      row({"leaky_relu.out"}, leaky_relu),
      row({"leaky_relu_backward.grad_input"}, leaky_relu_backward),
      row({"hardtanh", "hardtanh_", "hardtanh.out"}, hardtanh),
      row({"hardtanh_backward", "hardtanh_backward.grad_input"}, hardtanh_backward),
      row({"hardsigmoid.out"}, hardsigmoid),
      row({"hardsigmoid_backward.grad_input"}, hardsigmoid_backward),
      row({"hardswish", "hardswish_", "hardswish.out"}, hardswish),
      row({"hardswish_backward"}, hardswish_backward),
      row({"hardshrink.out"}, hardshrink),
      row({"hardshrink_backward.grad_input"}, shrink_backward),
      row({"softshrink.out"}, softshrink),
      row({"softshrink_backward.grad_input"}, shrink_backward),
      row({"softplus.out"}, softplus),
      row({"softplus_backward.grad_input"}, softplus_backward),
      {.overloads = {"log_sigmoid_forward", "log_sigmoid_forward.output"}, .emit = log_sigmoid_forward},
      row({"log_sigmoid_backward", "log_sigmoid_backward.grad_input"}, log_sigmoid_backward),
      row({"_prelu_kernel"}, prelu),
      {.overloads = {"_prelu_kernel_backward"}, .emit = prelu_backward},
      row({"glu.out"}, glu),
      row({"glu_backward", "glu_backward.grad_input"}, glu_backward),
  };
}

}  // namespace tpupilot::ops
