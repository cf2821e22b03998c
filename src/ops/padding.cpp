// reflection_pad* and replication_pad*: each padded dim is put together from runs of the source, forwards (the inside),
// backwards (a reflection) or standing still (a repeated edge); the gradient takes the same runs apart. Negative
// padding leaves elements out.
#include <algorithm>
#include <vector>

#include "ops/expr.h"

namespace tpupilot::ops {
namespace {

// Elements first, first + step, ... of a dim; step is 1, 0 or -1.
struct Run {
  int64_t first, step, count;
};

int64_t source(bool reflect, int64_t i, int64_t size) {
  if (!reflect) return std::clamp<int64_t>(i, 0, size - 1);
  if (i < 0) return -i;
  return i < size ? i : 2 * (size - 1) - i;
}

std::vector<Run> runs_of(bool reflect, int64_t size, int64_t low, int64_t padded) {
  std::vector<Run> runs;
  for (int64_t i = 0; i < padded; ++i) {
    const int64_t at = source(reflect, i - low, size);
    if (runs.empty()) {
      runs.push_back({at, 1, 1});
      continue;
    }
    Run& run = runs.back();
    const int64_t step = at - (run.first + run.step * (run.count - 1));
    if (run.count == 1 && step >= -1 && step <= 1) run.step = step;
    if (step == run.step) {
      ++run.count;
    } else {
      runs.push_back({at, 1, 1});
    }
  }
  return runs;
}

Value piece(Builder& b, const Value& x, int64_t dim, const Run& run) {
  if (run.step > 0) return b.slice_dim(x, dim, run.first, run.first + run.count);
  if (run.step < 0) return b.reverse(b.slice_dim(x, dim, run.first - run.count + 1, run.first + 1), {dim});
  Dims repeated = x.dims();
  repeated[static_cast<size_t>(dim)] = run.count;
  return b.broadcast(b.slice_dim(x, dim, run.first, run.first + 1), repeated);
}

// The run's part of g, put back at the places it was taken from.
Value returned(Builder& b, const Value& g, int64_t dim, const Run& run, int64_t size) {
  Value part = g;
  int64_t first = run.first, count = run.count;
  if (run.step < 0) {
    part = b.reverse(g, {dim});
    first = run.first - run.count + 1;
  } else if (run.step == 0) {
    part = b.unsqueeze(b.sum(g, {dim}), dim);
    count = 1;
  }
  Dims low(g.dims().size(), 0), high = low;
  low[static_cast<size_t>(dim)] = first;
  high[static_cast<size_t>(dim)] = size - first - count;
  return b.pad(part, b.zeros({g.elem(), {}}), low, high, Dims(low.size(), 0));
}

// Calls `each(dim, low)` for the padded dims; `padding` starts at the last one.
template <typename Each>
void for_padded_dims(const Dims& padding, int64_t rank, const Each& each) {
  for (size_t i = 0; i < padding.size() / 2; ++i) each(rank - 1 - static_cast<int64_t>(i), padding[2 * i]);
}

Values padded(Context& c, bool reflect) {
  Value x = c.tensor("self");
  if (c.result().numel() == 0) return {c.b.zeros(c.result())};
  for_padded_dims(c.integers("padding"), x.rank(), [&](int64_t dim, int64_t low) {
    const auto at = static_cast<size_t>(dim);
    Values pieces;
    for (const Run& run : runs_of(reflect, x.dims()[at], low, c.result().dims[at]))
      pieces.push_back(piece(c.b, x, dim, run));
    if (pieces.size() > 1) x = c.b.concatenate(pieces, dim);
    if (pieces.size() == 1) x = pieces[0];
  });
  return {x};
}

Values gradient(Context& c, bool reflect) {
  Builder& b = c.b;
  Value g = c.tensor("grad_output");
  if (g.type.numel() == 0 || c.result().numel() == 0) return {b.zeros(c.result())};
  g = b.convert(g, hlo::compute_elem(g.elem()));
  const Dims& full = c.result().dims;
  for_padded_dims(c.integers("padding"), g.rank(), [&](int64_t dim, int64_t low) {
    const auto at = static_cast<size_t>(dim);
    Value total;
    int64_t start = 0;
    for (const Run& run : runs_of(reflect, full[at], low, g.dims()[at])) {
      const Value part = returned(b, b.slice_dim(g, dim, start, start + run.count), dim, run, full[at]);
      total = total ? b.add(total, part) : part;
      start += run.count;
    }
    g = total;
  });
  return {g};
}

}  // namespace

std::vector<Row> padding_rows() {
  std::vector<Row> rows;
  const auto add = [&](std::vector<std::string_view> overloads, Values (*emit)(Context&, bool), bool reflect) {
    rows.push_back(
        {.overloads = std::move(overloads), .emit = [emit, reflect](Context& c) { return emit(c, reflect); }});
  };
  add({"reflection_pad1d.out", "reflection_pad2d", "reflection_pad2d.out", "reflection_pad3d.out"}, padded, true);
  add({"reflection_pad1d_backward.grad_input", "reflection_pad2d_backward", "reflection_pad2d_backward.grad_input",
       "reflection_pad3d_backward.grad_input"},
      gradient, true);
  add({"replication_pad1d.out", "replication_pad2d.out", "replication_pad3d.out"}, padded, false);
  add({"replication_pad1d_backward.grad_input", "replication_pad2d_backward", "replication_pad2d_backward.grad_input",
       "replication_pad3d_backward", "replication_pad3d_backward.grad_input"},
      gradient, false);
  return rows;
}

}  // namespace tpupilot::ops
