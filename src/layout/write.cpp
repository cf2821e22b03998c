// A value into the part of a dense buffer that a view names.
#include <algorithm>

#include "layout/plan.h"

namespace tpupilot::layout {
namespace {

using hlo::Builder;
using hlo::Direction;
using hlo::Value;
using hlo::Values;

// Writes to the last axis of `old`, whose other dims are along for the ride: [p..., length], and an update with the
// elements of [p..., sizes of steps...].
Value write_last(Builder& b, const Value& old, const std::vector<Step>& steps, int64_t offset, const Value& update,
                 const Values& starts = {});

// Pred of `dims`: is this index of dim i one of the axis' block?
Value in_block(Builder& b, const Dims& dims, size_t i, const Axis& a) {
  const hlo::Type type{start_elem(a.length), dims};
  const Value index = b.iota(type, static_cast<int64_t>(i));
  const auto constant = [&](int64_t v) { return b.constant_int(v, type); };
  Value inside = b.compare(Direction::GE, index, constant(a.start));
  inside = b.logical_and(inside, b.compare(Direction::LT, index, constant(a.start + a.span())));
  if (a.step == 1) return inside;
  const Value phase = b.binary("stablehlo.remainder", index, constant(a.step));
  return b.logical_and(inside, b.compare(Direction::EQ, phase, constant(a.start % a.step)));
}

// One element-wise pass: the update spread over the whole shape, selected where the block is.
Value write_strided_block(Builder& b, const Value& old, const std::vector<Axis>& axes, const Value& update) {
  Dims low, high, interior;
  Value mask;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Axis& a = axes[i];
    low.push_back(a.start);
    high.push_back(a.length - (a.start + a.span()));
    interior.push_back(a.step - 1);
    if (a.count == a.length) continue;
    const Value inside = in_block(b, old.dims(), i, a);
    mask = mask ? b.logical_and(mask, inside) : inside;
  }
  return b.select(mask, b.pad(update, b.zeros({old.elem(), {}}), low, high, interior), old);
}

Value write_block(Builder& b, const Value& old, const std::vector<Axis>& axes, const Value& update,
                  const Values& starts = {}) {
  Dims counts, spans;
  bool whole = true, strided = false;
  std::vector<Axis> within;  // the span's own axes
  for (const Axis& a : axes) {
    counts.push_back(a.count);
    spans.push_back(a.span());
    within.push_back({a.span(), 0, a.step, a.count});
    whole = whole && a.count == a.length;
    strided = strided || (a.count > 1 && a.step > 1);
  }
  Value block = b.reshape(update, counts);
  if (whole) return block;
  if (strided && starts.empty()) return write_strided_block(b, old, axes, block);
  const Values all = starts_of_all(b, axes, starts);
  if (strided) block = write_strided_block(b, b.dynamic_slice(old, all, spans), within, block);
  return b.dynamic_update_slice(old, block, all);
}

// The rows are cut out from `offset` on, the last one filled up, written to, and put back.
Value write_misaligned(Builder& b, const Value& old, const std::vector<Step>& steps, int64_t offset,
                       const Value& update) {
  const auto [size, stride] = steps.front();
  const size_t last = old.dims().size() - 1;
  const int64_t length = old.dims()[last], kept = std::min(size * stride, length - offset);
  Dims low(old.dims().size(), 0), high = low;
  low[last] = -offset;
  high[last] = offset + size * stride - length;
  const Value window = b.pad(old, b.zeros({old.elem(), {}}), low, high, Dims(low.size(), 0));
  Dims rows = old.dims();
  rows[last] = size;
  rows.push_back(stride);
  const Value written = write_last(b, b.reshape(window, rows), {steps.begin() + 1, steps.end()}, 0, update);
  const Value line = b.slice_dim(b.reshape(written, window.dims()), static_cast<int64_t>(last), 0, kept);
  std::vector<Axis> axes = whole_axes(old.dims());
  axes[last] = {length, offset, 1, kept};
  return write_block(b, old, axes, line);
}

Value write_interleaved(Builder& b, const Value& old, const std::vector<Step>& steps, int64_t offset,
                        const Value& update) {
  const size_t last = old.dims().size() - 1;
  const Value indices = flat_indices(b, steps, offset, 1, old.dims()[last]);
  Dims dims = old.dims();
  dims[last] = indices.dims()[0];
  hlo::Scatter s;
  s.inserted_window_dims = s.scatter_dims_to_operand_dims = {static_cast<int64_t>(last)};
  s.index_vector_dim = 1;
  for (size_t i = 0; i < last; ++i) s.update_window_dims.push_back(static_cast<int64_t>(i));
  return b.scatter(old, indices, b.reshape(update, dims), s);
}

Value write_last(Builder& b, const Value& old, const std::vector<Step>& steps, int64_t offset, const Value& update,
                 const Values& starts) {
  const Plan p = plan(steps, offset, old.dims().back());
  std::vector<Axis> axes = whole_axes({old.dims().begin(), old.dims().end() - 1});
  axes.insert(axes.end(), p.axes.begin(), p.axes.end());
  if (p.rest != Plan::Rest::None) axes.push_back(whole_axis(p.rest_length));
  const Value cut = b.reshape(old, lengths_of(axes));
  Value block = update;
  if (p.rest == Plan::Rest::Misaligned) {
    block = write_misaligned(b, read_block(b, cut, axes, starts), p.rest_steps, p.rest_offset, update);
  } else if (p.rest == Plan::Rest::Interleaved) {
    block = write_interleaved(b, read_block(b, cut, axes, starts), p.rest_steps, p.rest_offset, update);
  }
  return b.reshape(write_block(b, cut, axes, block, starts), old.dims());
}

void check_write(const Value& flat, int64_t length, const Layout& l, const Value& value) {
  if (value.dims() != l.sizes) {
    throw hlo::Error("[write] a value of type " + value.type.str() + " through a view with " + described(l));
  }
  if (flat && flat.type != hlo::Type{value.elem(), {length}}) {
    throw hlo::Error("[write] " + value.type.str() + " into " + flat.type.str() + ", expected " +
                     hlo::Type{value.elem(), {length}}.str());
  }
  if (!flat && !covers(l, length)) {
    throw hlo::Error("[write] a view with " + described(l) + " does not cover a buffer of " + std::to_string(length) +
                     " elements: its old value is needed");
  }
  check_bounds("write", l, length);
}

}  // namespace

Value write(Builder& b, const Value& flat, int64_t length, const Layout& l, const Value& value, const Values& starts) {
  check_write(flat, length, l, value);
  if (l.numel() == 0) return flat ? flat : b.reshape(value, {length});
  const Canonical c = canonical(l);
  if (c.expanded) {
    throw hlo::Error("[write] a view with " + described(l) + " names an element twice; clone it before writing");
  }
  // From the order of the view's dims to that of memory.
  Dims kept = c.sorted_dims, sizes, permutation;
  std::sort(kept.begin(), kept.end());
  for (int64_t d : kept) sizes.push_back(l.sizes[static_cast<size_t>(d)]);
  for (int64_t d : c.sorted_dims) permutation.push_back(std::find(kept.begin(), kept.end(), d) - kept.begin());
  const Value sorted = b.transpose(b.reshape(value, sizes), permutation);
  if (covers(l, length)) return b.reshape(sorted, {length});
  return write_last(b, flat, c.steps, l.offset, sorted, starts);
}

}  // namespace tpupilot::layout
