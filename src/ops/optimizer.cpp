// Fused optimizer steps: one program for a whole list of parameters. The formulas are those of at::native's fused
// kernels: scalars in f64, the rest in each parameter's opmath type. Also what a gradient scaler needs.
#include <functional>

#include "ops/expr.h"

namespace tpupilot::ops {
namespace {

// ---------------------------------------------------------------- the lists of one call

std::vector<Expr> list(Context& c, std::string_view name) {
  std::vector<Expr> values;
  for (const std::optional<Value>& v : c.tensors(name)) values.push_back(expr(c, v.value()));
  return values;
}

Expr opmath(const Expr& x) { return convert(x, hlo::compute_elem(x.v.elem())); }

// A float argument, or a 0-d tensor in its place (a learning rate that is one), in f64.
Expr scalar64(Context& c, std::string_view name) {
  if (c.is_scalar(name)) return expr(c, c.scalar(name, Elem::F64));
  return convert(reshape(expr(c, c.tensor(name)), {}), Elem::F64);
}

// A 0-d f64 value in the type of `like`; operators broadcast it.
Expr as(const Expr& scalar, const Expr& like) { return convert(scalar, like.v.elem()); }

Expr power(const Expr& base, const Expr& exponent) { return apply("stablehlo.power", base, exponent); }

// The parameter lists of one call and what becomes of them. Lists that the step does not write keep their values: their
// results are undefined.
class Step {
 public:
  // `lists`: the written arguments in schema order; the first are the parameters, the second their gradients.
  Step(Context& c, const std::vector<std::string_view>& lists) : c_(c) {
    for (const std::string_view name : lists) {
      old_.push_back(list(c, name));
      new_.emplace_back(old_.back().size());
    }
    if (c.given("found_inf")) skip_ = equal(reshape(expr(c, c.tensor("found_inf")), {}), 1);
  }

  size_t count() const { return old_[0].size(); }
  bool has(size_t which) const { return !old_[which].empty(); }
  Expr old(size_t which, size_t i) const { return opmath(old_[which][i]); }

  // The gradient as the step uses it: unscaled (and written back so), negated where the loss is maximised.
  Expr gradient(size_t i) {
    Expr g = old(1, i);
    if (c_.given("grad_scale")) {
      g = g / as(reshape(expr(c_, c_.tensor("grad_scale")), {}), g);
      write(1, i, g);
    }
    return c_.boolean("maximize") ? -g : g;
  }

  void write(size_t which, size_t i, const Expr& value) {
    const Expr before = old_[which][i], after = convert(value, before.v.elem());
    new_[which][i] = skip_ ? expr(c_, c_.b.select(*skip_, before, after)).v : after.v;
  }

  Values results() const {
    Values all;
    for (const Values& list : new_) all.insert(all.end(), list.begin(), list.end());
    return all;
  }

 private:
  Context& c_;
  std::vector<std::vector<Expr>> old_;
  std::vector<Values> new_;
  std::optional<Expr> skip_;  // 0-d Pred
};

// ---------------------------------------------------------------- Adam, AdamW

enum class Decay { Gradient, Parameter };

Emitter adam(Decay decay) {
  return [decay](Context& c) {
    Step step(c, {"self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"});
    const std::vector<Expr> steps = list(c, "state_steps");
    const Expr lr = scalar64(c, "lr"), beta1 = scalar64(c, "beta1"), beta2 = scalar64(c, "beta2"),
               eps = scalar64(c, "eps"), weight_decay = scalar64(c, "weight_decay");
    for (size_t i = 0; i < step.count(); ++i) {
      Expr g = step.gradient(i), p = step.old(0, i);
      if (decay == Decay::Parameter) {
        p = p - as(lr * weight_decay, p) * p;
      } else {
        g = g + as(weight_decay, p) * p;
      }
      const Expr m = as(beta1, p) * step.old(2, i) + as(1 - beta1, p) * g;
      const Expr v = as(beta2, p) * step.old(3, i) + as(1 - beta2, p) * g * g;
      const Expr t = convert(reshape(steps[i], {}), Elem::F64);
      const Expr correction1 = 1 - power(beta1, t), correction2 = sqrt(1 - power(beta2, t));
      Expr second = v;
      if (c.boolean("amsgrad")) {
        second = maximum(step.old(4, i), v);
        step.write(4, i, second);
      }
      const Expr denominator = sqrt(second) / as(correction2, p) + as(eps, p);
      step.write(0, i, p - as(lr / correction1, p) * m / denominator);
      step.write(2, i, m);
      step.write(3, i, v);
    }
    return step.results();
  };
}

// ---------------------------------------------------------------- SGD, Adagrad

Values sgd(Context& c) {
  Step step(c, {"self", "grads", "momentum_buffer_list"});
  const Expr lr = scalar64(c, "lr"), momentum = scalar64(c, "momentum"), dampening = scalar64(c, "dampening"),
             weight_decay = scalar64(c, "weight_decay");
  for (size_t i = 0; i < step.count(); ++i) {
    const Expr p = step.old(0, i);
    Expr g = step.gradient(i);
    g = g + as(weight_decay, p) * p;
    if (step.has(2)) {
      const Expr buffer = c.boolean("is_first_step") ? g : as(momentum, p) * step.old(2, i) + as(1 - dampening, p) * g;
      step.write(2, i, buffer);
      g = c.boolean("nesterov") ? g + as(momentum, p) * buffer : buffer;
    }
    step.write(0, i, p - as(lr, p) * g);
  }
  return step.results();
}

Values adagrad(Context& c) {
  Step step(c, {"self", "grads", "state_sums"});
  const std::vector<Expr> steps = list(c, "state_steps");
  const Expr lr = scalar64(c, "lr"), lr_decay = scalar64(c, "lr_decay"), eps = scalar64(c, "eps"),
             weight_decay = scalar64(c, "weight_decay");
  for (size_t i = 0; i < step.count(); ++i) {
    const Expr p = step.old(0, i), g = step.gradient(i) + as(weight_decay, p) * p;
    const Expr t = convert(reshape(steps[i], {}), Elem::F64);
    const Expr rate = lr / (1 + (t - 1) * lr_decay), sum = step.old(2, i) + g * g;
    step.write(0, i, p - as(rate, p) * g / (sqrt(sum) + as(eps, p)));
    step.write(2, i, sum);
  }
  return step.results();
}

// state_steps is written according to one overload's schema; the step leaves it alone.
Values adagrad_with_steps(Context& c) {
  Values results = adagrad(c);
  results.resize(results.size() + c.tensors("state_steps").size());
  return results;
}

// ---------------------------------------------------------------- gradient scaler

Values unscale(Context& c) {
  const Expr found = expr(c, c.tensor("found_inf")), inverse = reshape(expr(c, c.tensor("inv_scale")), {});
  Expr any = equal(reshape(found, {}), 1);
  Values results;
  for (const Expr& g : list(c, "self")) {
    const Expr wide = opmath(g), finite = apply("stablehlo.is_finite", wide);
    Dims dims;
    for (int64_t i = 0; i < wide.v.rank(); ++i) dims.push_back(i);
    any = any | expr(c, c.b.any(!finite, dims));
    results.push_back(wide * as(inverse, wide));
  }
  results.push_back(broadcast(convert(any, found.v.elem()), found.v.dims()));
  return results;
}

Values update_scale(Context& c) {
  const Expr scale = expr(c, c.tensor("self")), tracker = expr(c, c.tensor("growth_tracker"));
  const Expr bad = equal(reshape(expr(c, c.tensor("found_inf")), {}), 1);
  const Expr good = tracker + 1, full = equal(good, static_cast<double>(c.integer("growth_interval")));
  const Expr grown = scale * as(scalar64(c, "scale_growth_factor"), scale);
  const Expr next = where(full & apply("stablehlo.is_finite", grown), grown, scale);
  return {where(bad, scale * as(scalar64(c, "scale_backoff_factor"), scale), next),
          where(bad, number(good, 0), where(full, number(good, 0), good))};
}

}  // namespace

std::vector<Row> optimizer_rows() {
  return {
      {.overloads = {"_fused_adam_", "_fused_adam_.tensor_lr"}, .emit = adam(Decay::Gradient)},
      {.overloads = {"_fused_adamw_", "_fused_adamw_.tensor_lr"}, .emit = adam(Decay::Parameter)},
      {.overloads = {"_fused_sgd_", "_fused_sgd_.tensor_lr"}, .emit = sgd},
      {.overloads = {"_fused_adagrad_"}, .emit = adagrad_with_steps},
      {.overloads = {"_fused_adagrad_.tensor_lr"}, .emit = adagrad},
      {.overloads = {"_amp_foreach_non_finite_check_and_unscale_"}, .emit = unscale},
      {.overloads = {"_amp_update_scale_"}, .emit = update_scale, .mutates = {"growth_tracker"}},
  };
}

}  // namespace tpupilot::ops
