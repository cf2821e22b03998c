// The fused LSTM and GRU cells that torch.nn's recurrent modules choose on this device, and their gradients. Gates are
// [batch, k * hidden], in torch.nn's order; a cell's workspace is what its gradient reads again.
#include "ops/expr.h"

namespace tpupilot::ops {
namespace {

// Part `i` of `count` equal ones along dim 1.
Expr part(const Expr& x, int64_t i, int64_t count) {
  const int64_t n = x.v.dims()[1] / count;
  return {x.b, x.b->slice_dim(x, 1, i * n, (i + 1) * n)};
}

Expr joined(const std::vector<Expr>& parts) {
  hlo::Values values;
  for (const Expr& p : parts) values.push_back(p);
  return {parts[0].b, parts[0].b->concatenate(values, 1)};
}

// input_gates or hidden_gates with their bias.
Expr gates(Context& c, std::string_view name, std::string_view bias) {
  const Expr x = wide(c, name);
  return c.given(bias) ? x + along(wide(c, bias), 1, x.v.dims()) : x;
}

Type columns(const Type& like, int64_t count) { return {like.elem, {like.dims[0], like.dims[1] * count}}; }

// ---------------------------------------------------------------- LSTM: input, forget, cell, output gate

Values lstm_cell(Context& c) {
  const Expr sum = gates(c, "input_gates", "input_bias") + gates(c, "hidden_gates", "hidden_bias");
  const Expr i = logistic(part(sum, 0, 4)), f = logistic(part(sum, 1, 4)), g = tanh(part(sum, 2, 4)),
             o = logistic(part(sum, 3, 4));
  const Expr cy = f * wide(c, "cx") + i * g;
  return {o * tanh(cy), cy, joined({i, f, g, o})};
}

std::vector<Type> lstm_shape(Context& c) {
  const Type cell = c.tensor("cx").type;
  return {cell, cell, columns(cell, 4)};
}

// grad_hy or grad_cy: zero where it is undefined.
Expr gradient(Context& c, std::string_view name, const Expr& like) {
  return c.given(name) ? wide(c, name) : number(like, 0);
}

Values lstm_cell_backward(Context& c) {
  const Expr workspace = wide(c, "workspace"), cx = wide(c, "cx"), t = tanh(wide(c, "cy"));
  const Expr i = part(workspace, 0, 4), f = part(workspace, 1, 4), g = part(workspace, 2, 4), o = part(workspace, 3, 4);
  const Expr hy = gradient(c, "grad_hy", cx);
  const Expr cy = hy * o * (1 - t * t) + gradient(c, "grad_cy", cx);
  const Expr all = joined({cy * g * (1 - i) * i, cy * cx * (1 - f) * f, cy * i * (1 - g * g), hy * t * (1 - o) * o});
  return {all, cy * f, c.boolean("has_bias") ? sum(all, {0}).v : Value()};
}

std::vector<Type> lstm_backward_shape(Context& c) {
  const Type cell = c.tensor("cx").type;
  return {columns(cell, 4), cell, {cell.elem, {4 * cell.dims[1]}}};
}

// ---------------------------------------------------------------- GRU: reset, update, new gate

// The workspace: reset, update and new gate, the old state, and the hidden part of the new gate.
Values gru_cell(Context& c) {
  const Expr x = gates(c, "input_gates", "input_bias"), h = gates(c, "hidden_gates", "hidden_bias"), hx = wide(c, "hx");
  const Expr r = logistic(part(x, 0, 3) + part(h, 0, 3)), z = logistic(part(x, 1, 3) + part(h, 1, 3));
  const Expr hidden = part(h, 2, 3), n = tanh(part(x, 2, 3) + r * hidden);
  return {n + z * (hx - n), joined({r, z, n, hx, hidden})};
}

std::vector<Type> gru_shape(Context& c) {
  const Type state = c.tensor("hx").type;
  return {state, columns(state, 5)};
}

Values gru_cell_backward(Context& c) {
  const Expr workspace = wide(c, "workspace"), g = wide(c, "grad_hy");
  const Expr r = part(workspace, 0, 5), z = part(workspace, 1, 5), n = part(workspace, 2, 5),
             hx = part(workspace, 3, 5), hidden = part(workspace, 4, 5);
  const Expr update = g * (hx - n) * (1 - z) * z, fresh = g * (1 - z) * (1 - n * n);
  const Expr reset = fresh * hidden * (1 - r) * r;
  const Expr input = joined({reset, update, fresh}), state = joined({reset, update, fresh * r});
  if (!c.boolean("has_bias")) return {input, state, g * z, Value(), Value()};
  return {input, state, g * z, sum(input, {0}), sum(state, {0})};
}

std::vector<Type> gru_backward_shape(Context& c) {
  const Type state = c.tensor("grad_hy").type, gates = columns(state, 3), bias = {state.elem, {3 * state.dims[1]}};
  return {gates, gates, state, bias, bias};
}

}  // namespace

std::vector<Row> recurrent_rows() {
  return {
      {.overloads = {"_thnn_fused_lstm_cell"}, .emit = lstm_cell, .shape = lstm_shape},
      {.overloads = {"_thnn_fused_lstm_cell_backward_impl"}, .emit = lstm_cell_backward, .shape = lstm_backward_shape},
      {.overloads = {"_thnn_fused_gru_cell"}, .emit = gru_cell, .shape = gru_shape},
      {.overloads = {"_thnn_fused_gru_cell_backward"}, .emit = gru_cell_backward, .shape = gru_backward_shape},
  };
}

}  // namespace tpupilot::ops
