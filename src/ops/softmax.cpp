// softmax and log_softmax along one dim, and their gradients; computed in the opmath type whatever half_to_float says:
// only the result's element type differs.
#include "ops/expr.h"

namespace tpupilot::ops {
namespace {

struct Rows {  // the values at rank 1 or more, and the dim as a reduction wants it
  Expr x;
  Dims dim;
};

Rows rows_of(Context& c, std::string_view tensor) {
  Expr x = wide(c, tensor);
  if (x.v.rank() == 0) x = reshape(x, {1});
  return {x, {hlo::wrap_dim(c.integer("dim"), x.v.rank())}};
}

Values result(Context& c, const Expr& x) { return {reshape(x, c.result().dims)}; }

Values softmax(Context& c) {
  const auto [x, dim] = rows_of(c, "self");
  const Expr e = exp(x - amax_like(x, dim));
  return result(c, e / sum_like(e, dim));
}

Values log_softmax(Context& c) {
  const auto [x, dim] = rows_of(c, "self");
  const Expr shifted = x - amax_like(x, dim);
  const Expr total = log(sum(exp(shifted), dim));
  return result(c, shifted - expr(c, c.b.unreduce(total, x.v.dims(), dim)));
}

Values softmax_backward(Context& c) {
  const auto [y, dim] = rows_of(c, "output");
  const Expr g = rows_of(c, "grad_output").x;
  return result(c, y * (g - sum_like(g * y, dim)));
}

Values log_softmax_backward(Context& c) {
  const auto [y, dim] = rows_of(c, "output");
  const Expr g = rows_of(c, "grad_output").x;
  return result(c, g - exp(y) * sum_like(g, dim));
}

}  // namespace

std::vector<Row> softmax_rows() {
  return {
      {.overloads = {"_softmax.out"}, .emit = softmax},
      {.overloads = {"_log_softmax.out"}, .emit = log_softmax},
      {.overloads = {"_softmax_backward_data.out"}, .emit = softmax_backward},
      {.overloads = {"_log_softmax_backward_data.out"}, .emit = log_softmax_backward},
  };
}

}  // namespace tpupilot::ops
