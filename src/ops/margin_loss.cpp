// multi_margin_loss and multilabel_margin_loss, and their gradients. `reduction`: 0 none, 1 mean, 2 sum.
#include "ops/expr.h"
#include "ops/indexing.h"

namespace tpupilot::ops {
namespace {

constexpr int64_t kNone = 0, kMean = 1;

// self as [N, C], whether it has a batch or not.
Expr rows_of(Context& c) {
  const Expr x = wide(c, "self");
  if (x.v.rank() == 0) return reshape(x, {1, 1});
  return x.v.rank() == 1 ? reshape(x, {1, x.v.dims()[0]}) : x;
}

Values reduced(Context& c, const Expr& loss) {
  if (c.integer("reduction") == kNone) return {reshape(loss, c.result(0).dims)};
  const Expr total = sum(loss, {0});
  return {c.integer("reduction") == kMean ? total / static_cast<double>(loss.v.type.numel()) : total};
}

// The gradient that reaches each of n losses, at `dims` [n, ...].
Expr arriving(Context& c, const Dims& dims) {
  const Expr g = wide(c, "grad_output");
  if (c.integer("reduction") == kNone) return along(reshape(g, {dims[0]}), 0, dims);
  const Expr all = broadcast(reshape(g, {}), dims);
  return c.integer("reduction") == kMean ? all / static_cast<double>(dims[0]) : all;
}

// ---------------------------------------------------------------- one label: sum of max(0, margin - x[label] + x[i])^p

struct Margins {
  Expr x, z;      // [N, C]; z: what exceeds the margin, 0 at the label
  Expr at_label;  // Pred
  Expr weight;    // [N, C], over C
  bool squared;
};
Margins margins_of(Context& c) {
  Builder& b = c.b;
  const double p = c.constant("p");
  if (p != 1 && p != 2) throw hlo::Error("only p == 1 and p == 2 supported");
  const Expr x = rows_of(c);
  const Dims& dims = x.v.dims();
  const Value target = b.reshape(b.convert(c.tensor("target"), Elem::S64), {dims[0], 1});
  require_within(c, target, 0, dims[1], {Refusal::Kind::Runtime, "target out of range"});
  const Expr at_label = equal(broadcast(expr(c, target), dims), expr(c, b.iota({Elem::S64, dims}, 1)));
  const Expr own = broadcast(expr(c, gather_along(b, x, target, 1)), dims);
  const Expr over = maximum(expr(c, c.scalar("margin", x.v.elem())) - own + x, 0);
  Expr weight = number(x, 1);
  if (c.given("weight")) {
    const Value taken = take_slices(b, b.convert(c.tensor("weight"), x.v.elem()), b.reshape(target, {dims[0]}), 0);
    weight = along(expr(c, taken), 0, dims);
  }
  return {x, where(at_label, 0, over), at_label, weight / static_cast<double>(dims[1]), p == 2};
}

Values multi_margin(Context& c) {
  if (c.tensor("self").type.numel() == 0) return {c.b.zeros(c.result())};
  const Margins m = margins_of(c);
  return reduced(c, sum((m.squared ? m.z * m.z : m.z) * m.weight, {1}));
}

Values multi_margin_backward(Context& c) {
  if (c.result().numel() == 0) return {c.b.zeros(c.result())};
  const Margins m = margins_of(c);
  const Expr slope = m.squared ? 2.0 * m.z : where(m.z > 0, number(m.z, 1), 0);
  const Expr others = slope * m.weight * arriving(c, m.x.v.dims());
  return {reshape(where(m.at_label, -sum_like(others, {1}), others), c.result().dims)};
}

// ---------------------------------------------------------------- several labels, up to the first negative one

struct Labels {
  Expr x;          // [N, C]
  Expr place;      // S64 [N, C]; 0 where there is no label
  Expr counts;     // Pred [N, C]: before the end of the list
  Expr is_target;  // Pred [N, C], by class
};
Labels labels_of(Context& c) {
  Builder& b = c.b;
  const Expr x = rows_of(c);
  const Dims& dims = x.v.dims();
  const int64_t classes = dims[1];
  const Expr target = expr(c, b.reshape(b.convert(c.tensor("target"), Elem::S64), dims));
  require_within(c, target, -1, classes, {Refusal::Kind::Runtime, "argument #2 'target' is out of range"});
  const Expr position = expr(c, b.iota({Elem::S64, dims}, 1));
  const Expr ends{&b, b.amin(where(target < 0, position, static_cast<double>(classes)), {1})};
  const Expr counts = position < along(ends, 0, dims), place = where(counts, target, 0);
  const Dims all{dims[0], classes, classes};
  const Expr named{&b, b.broadcast_in_dim(place, all, {0, 1})}, is_listed{&b, b.broadcast_in_dim(counts, all, {0, 1})};
  const Expr hits = equal(named, expr(c, b.iota({Elem::S64, all}, 2))) & is_listed;
  return {x, place, counts, {&b, b.any(hits, {1})}};
}

// max(0, 1 - x[label] + x[i]) for each listed label (dim 1) and each class i that is none (dim 2); else 0.
Expr hinges(Context& c, const Labels& l) {
  Builder& b = c.b;
  const int64_t n = l.x.v.dims()[0], classes = l.x.v.dims()[1];
  const Dims all{n, classes, classes};
  const auto by_label = [&](const Value& v) { return Expr{&b, b.broadcast_in_dim(v, all, {0, 1})}; };
  const auto by_class = [&](const Value& v) { return Expr{&b, b.broadcast_in_dim(v, all, {0, 2})}; };
  const Expr over = 1 - by_label(gather_along(b, l.x, l.place, 1)) + by_class(l.x);
  return where(by_label(l.counts) & by_class(!l.is_target) & (over > 0), over, 0);
}

Values multilabel_margin(Context& c) {
  if (c.tensor("self").type.numel() == 0) return {c.b.zeros(c.result(0)), c.b.zeros(c.result(1))};
  const Labels l = labels_of(c);
  Values results = reduced(c, sum(hinges(c, l), {1, 2}) / static_cast<double>(l.x.v.dims()[1]));
  results.push_back(c.b.reshape(convert(l.is_target, l.x.v.elem()), c.result(1).dims));
  return results;
}

Values multilabel_margin_backward(Context& c) {
  Builder& b = c.b;
  if (c.result().numel() == 0) return {b.zeros(c.result())};
  const Labels l = labels_of(c);
  const Dims& dims = l.x.v.dims();
  const Expr active = convert(hinges(c, l) > 0, l.x.v.elem());
  const Expr share = arriving(c, dims) / static_cast<double>(dims[1]);
  const Expr at_classes = sum(active, {1}) * share, at_labels = -(sum(active, {2}) * share);
  return {b.reshape(scatter_along(b, at_classes, l.place, at_labels, 1, "stablehlo.add"), c.result().dims)};
}

std::vector<Type> like_self(Context& c) { return {c.tensor("self").type}; }

}  // namespace

std::vector<Row> margin_loss_rows() {
  return {
      {.overloads = {"multi_margin_loss", "multi_margin_loss.out"},
       .emit = multi_margin,
       .constants = {"p"},
       .remark = kLabelOutOfRange},
      {.overloads = {"multi_margin_loss_backward", "multi_margin_loss_backward.grad_input"},
       .emit = multi_margin_backward,
       .shape = like_self,
       .constants = {"p"},
       .remark = kLabelOutOfRange},
      {.overloads = {"multilabel_margin_loss_forward", "multilabel_margin_loss_forward.output"},
       .emit = multilabel_margin,
       .remark = kLabelOutOfRange},
      {.overloads = {"multilabel_margin_loss_backward", "multilabel_margin_loss_backward.grad_input"},
       .emit = multilabel_margin_backward,
       .shape = like_self,
       .remark = kLabelOutOfRange},
  };
}

}  // namespace tpupilot::ops
