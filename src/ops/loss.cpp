// Losses with rows of their own, and their gradients; the others are composites in core. `reduction`: 0 none, 1 mean, 2
// sum.
#include "ops/expr.h"
#include "ops/indexing.h"

namespace tpupilot::ops {
namespace {

constexpr int64_t kNone = 0, kMean = 1;

Dims every_dim(const Expr& x) {
  Dims dims;
  for (int64_t d = 0; d < x.v.rank(); ++d) dims.push_back(d);
  return dims;
}

Expr reduced(Context& c, const Expr& loss) {
  if (c.integer("reduction") == kNone) return loss;
  const Expr total = sum(loss, every_dim(loss));
  return c.integer("reduction") == kMean ? total / static_cast<double>(loss.v.type.numel()) : total;
}

// The tensors of an element-wise loss, in one shape and the opmath type.
struct Pair {
  Expr x, target;
};
Pair pair_of(Context& c) {
  const Expr x = wide(c, "self"), target = wide(c, "target");
  Dims common = x.v.rank() >= target.v.rank() ? x.v.dims() : target.v.dims();
  const Dims& other = x.v.rank() >= target.v.rank() ? target.v.dims() : x.v.dims();
  for (size_t i = 0; i < other.size(); ++i) {
    int64_t& size = common[common.size() - other.size() + i];
    if (size == 1) size = other[i];
  }
  return {broadcast(x, common), broadcast(target, common)};
}

// The gradient that reaches one element: grad_output, over the count of elements where the loss is their mean.
Expr arriving(Context& c, const Pair& p) {
  const Expr g = broadcast(wide(c, "grad_output"), p.x.v.dims());
  return c.integer("reduction") == kMean ? g / static_cast<double>(p.x.v.type.numel()) : g;
}

Values mse(Context& c) {
  const auto [x, target] = pair_of(c);
  return {reduced(c, (x - target) * (x - target))};
}
Values mse_backward(Context& c) {
  const Pair p = pair_of(c);
  return {arriving(c, p) * (p.x - p.target) * 2};
}

Values smooth_l1(Context& c) {
  const auto [x, target] = pair_of(c);
  const Expr beta = wide_scalar(c, "beta"), z = abs(x - target);
  return {reduced(c, where(z < beta, 0.5 * z * z / beta, z - 0.5 * beta))};
}
Values smooth_l1_backward(Context& c) {
  const Pair p = pair_of(c);
  const Expr d = p.x - p.target, g = arriving(c, p), beta = wide_scalar(c, "beta");
  return {where(d <= -beta, -g, where(d >= beta, g, g * d / beta))};
}

Values huber(Context& c) {
  const auto [x, target] = pair_of(c);
  const Expr delta = wide_scalar(c, "delta"), z = abs(x - target);
  return {reduced(c, where(z <= delta, 0.5 * z * z, delta * (z - 0.5 * delta)))};
}
Values huber_backward(Context& c) {
  const Pair p = pair_of(c);
  const Expr d = p.x - p.target, g = arriving(c, p), delta = wide_scalar(c, "delta");
  return {where(d <= -delta, -(g * delta), where(d >= delta, g * delta, g * d))};
}

Expr weighted(Context& c, const Expr& loss) {
  return c.given("weight") ? loss * broadcast(wide(c, "weight"), loss.v.dims()) : loss;
}
Values binary_cross_entropy(Context& c) {  // logarithms stop at -100, so that a sure and wrong answer stays finite
  const auto [x, target] = pair_of(c);
  for (const auto& [values, name] : {std::pair{x, "input"}, std::pair{target, "target"}}) {
    c.require((values >= 0) & (values <= 1), {},
              {Refusal::Kind::Runtime, "all elements of " + std::string(name) + " should be between 0 and 1"});
  }
  return {reduced(c, weighted(c, (target - 1) * maximum(log1p(-x), -100) - target * maximum(log(x), -100)))};
}
Values binary_cross_entropy_backward(Context& c) {
  const Pair p = pair_of(c);
  return {weighted(c, arriving(c, p) * (p.x - p.target) / maximum((1 - p.x) * p.x, 1e-12))};
}

// ---------------------------------------------------------------- negative log likelihood

// self [C], [N, C] or [N, C, ...] and the targets beside it, with a class dim of size 1.
struct Labels {
  Type self;
  int64_t class_dim;
  Expr places;   // S64; 0 where ignored
  Expr counted;  // Pred: not ignored
  Expr weights;  // of the targets' classes; 0 where ignored
};

Labels labels_of(Context& c, Elem elem) {
  Builder& b = c.b;
  Labels l{c.tensor("self").type, 0, {}, {}, {}};
  l.class_dim = l.self.rank() > 1 ? 1 : 0;
  Dims dims = l.self.dims;
  dims[static_cast<size_t>(l.class_dim)] = 1;
  const Expr target = reshape(convert(expr(c, c.tensor("target")), Elem::S64), dims);
  const Expr ignored = equal(target, expr(c, b.constant_int(c.integer("ignore_index"), {Elem::S64, {}})));
  l.counted = !ignored;
  l.places = where(ignored, 0, target);
  require_within(c, l.places, 0, l.self.dims[static_cast<size_t>(l.class_dim)],
                 {Refusal::Kind::Index, "Target {} is out of bounds."});
  Expr weights = expr(c, b.constant(1, {elem, dims}));
  if (c.given("weight")) {
    const Value flat = b.reshape(l.places, {hlo::product(dims)});
    weights = reshape(convert(expr(c, take_slices(b, c.tensor("weight"), flat, 0)), elem), dims);
  }
  l.weights = where(l.counted, weights, 0);
  return l;
}

Values nll_forward(Context& c) {
  const Expr x = wide(c, "self");
  const Labels l = labels_of(c, x.v.elem());
  const Expr picked = expr(c, gather_along(c.b, x, l.places, l.class_dim));
  // An ignored element counts nothing, whatever stands there.
  const Expr loss = where(l.counted, -(picked * l.weights), 0);
  const Expr none = expr(c, c.b.zeros({x.v.elem(), {}}));
  if (c.integer("reduction") == kNone && l.self.rank() > 1) return {reshape(loss, c.result(0).dims), none};
  const Expr total = sum(loss, every_dim(loss)), weight = sum(l.weights, every_dim(loss));
  return {c.integer("reduction") == kMean ? total / weight : total, weight};
}

Values nll_backward(Context& c) {
  const Elem elem = result_opmath(c);
  const Labels l = labels_of(c, elem);
  const Dims& dims = l.places.v.dims();
  const Expr grad = wide(c, "grad_output");
  Expr g = grad.v.rank() == 0 ? broadcast(grad, dims) : reshape(grad, dims);
  if (c.integer("reduction") == kMean) g = g / wide(c, "total_weight");
  const Expr updates = where(l.counted, -(g * l.weights), 0);
  const Value zeros = c.b.zeros({elem, l.self.dims});
  return {scatter_along(c.b, zeros, l.places, updates, l.class_dim, {}, true)};
}

}  // namespace

std::vector<Row> loss_rows() {
  constexpr std::string_view kProbability = "values outside of [0, 1] raise when the host next waits for the device";
  return {
      {.overloads = {"nll_loss_forward.output", "nll_loss2d_forward", "nll_loss2d_forward.output"},
       .emit = nll_forward,
       .remark = kLabelOutOfRange},
      {.overloads = {"nll_loss_backward.grad_input", "nll_loss2d_backward", "nll_loss2d_backward.grad_input"},
       .emit = nll_backward,
       .remark = kLabelOutOfRange},
      {.overloads = {"mse_loss.out"}, .emit = mse},
      {.overloads = {"mse_loss_backward", "mse_loss_backward.grad_input"}, .emit = mse_backward},
      {.overloads = {"smooth_l1_loss.out"}, .emit = smooth_l1},
      {.overloads = {"smooth_l1_loss_backward.grad_input"}, .emit = smooth_l1_backward},
      {.overloads = {"huber_loss", "huber_loss.out"}, .emit = huber},
      {.overloads = {"huber_loss_backward.out"}, .emit = huber_backward},
      {.overloads = {"binary_cross_entropy", "binary_cross_entropy.out"},
       .emit = binary_cross_entropy,
       .remark = kProbability},
      {.overloads = {"binary_cross_entropy_backward", "binary_cross_entropy_backward.grad_input"},
       .emit = binary_cross_entropy_backward},
  };
}

}  // namespace tpupilot::ops
