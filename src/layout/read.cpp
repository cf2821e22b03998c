// A view's value out of a dense buffer.
#include <numeric>

#include "hlo/text.h"
#include "layout/plan.h"

namespace tpupilot::layout {
namespace {

using hlo::Builder;
using hlo::Value;
using hlo::Values;

// Reads of the last axis of `v`, whose other dims are along for the ride. [p..., length] -> [p..., sizes of steps...],
// perhaps with dims of size 1 more.
Value read_last(Builder& b, const Value& v, const std::vector<Step>& steps, int64_t offset, const Values& starts = {});

// Rows of `stride` elements are cut out from `offset` on; the last one may reach past the end and is filled up.
Value read_misaligned(Builder& b, const Value& v, const std::vector<Step>& steps, int64_t offset) {
  const auto [size, stride] = steps.front();
  const size_t last = v.dims().size() - 1;
  Dims low(v.dims().size(), 0), high = low;
  low[last] = -offset;
  high[last] = offset + size * stride - v.dims()[last];
  Dims rows = v.dims();
  rows[last] = size;
  rows.push_back(stride);
  const Value window = b.pad(v, b.zeros({v.elem(), {}}), low, high, Dims(v.dims().size(), 0));
  return read_last(b, b.reshape(window, rows), {steps.begin() + 1, steps.end()}, 0);
}

// Gathers whole rows where the inner dims fit into one; as few indices as that allows.
Value read_interleaved(Builder& b, const Value& v, const std::vector<Step>& steps, int64_t offset) {
  const size_t last = v.dims().size() - 1;
  const int64_t length = v.dims()[last];
  int64_t unit = length;
  size_t outer = 0;
  std::vector<Step> inner;
  do {  // ends at the latest with all steps outside
    unit = std::gcd(unit, steps[outer++].stride);
    inner.assign(steps.begin() + static_cast<std::ptrdiff_t>(outer), steps.end());
  } while (offset % unit + extent(inner) > unit);
  const std::vector<Step> rows(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(outer));

  Dims dims = v.dims();
  dims[last] = length / unit;
  dims.push_back(unit);
  const Value indices = flat_indices(b, rows, offset, unit, length);
  hlo::Gather g;
  g.slice_sizes = dims;
  g.slice_sizes[last] = 1;
  g.collapsed_slice_dims = g.start_index_map = {static_cast<int64_t>(last)};
  g.index_vector_dim = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i != last) g.offset_dims.push_back(static_cast<int64_t>(i));
  }
  Dims out = dims;
  out[last] = indices.dims()[0];
  return read_last(b, b.gather(b.reshape(v, dims), indices, g, out), inner, offset % unit);
}

Value read_last(Builder& b, const Value& v, const std::vector<Step>& steps, int64_t offset, const Values& starts) {
  const Plan p = plan(steps, offset, v.dims().back());
  std::vector<Axis> axes = whole_axes({v.dims().begin(), v.dims().end() - 1});
  axes.insert(axes.end(), p.axes.begin(), p.axes.end());
  if (p.rest != Plan::Rest::None) axes.push_back(whole_axis(p.rest_length));
  Value block = read_block(b, b.reshape(v, lengths_of(axes)), axes, starts);
  switch (p.rest) {
    case Plan::Rest::Misaligned:
      return read_misaligned(b, block, p.rest_steps, p.rest_offset);
    case Plan::Rest::Interleaved:
      return read_interleaved(b, block, p.rest_steps, p.rest_offset);
    case Plan::Rest::None:
      break;
  }
  return block;
}

}  // namespace

Value read(Builder& b, const Value& flat, const Layout& l, const Values& starts) {
  if (flat.rank() != 1) throw hlo::Error("[read] the buffer must be one-dimensional, not " + flat.type.str());
  check_bounds("read", l, flat.dims()[0]);
  if (l.numel() == 0) return b.zeros({flat.elem(), l.sizes});
  const Canonical c = canonical(l);
  const Value sorted = b.reshape(read_last(b, flat, c.steps, l.offset, starts), c.sorted_sizes);
  // From the order of memory to that of the view's dims.
  Dims kept = c.sorted_dims, permutation;
  std::sort(kept.begin(), kept.end());
  for (int64_t d : kept) {
    permutation.push_back(std::find(c.sorted_dims.begin(), c.sorted_dims.end(), d) - c.sorted_dims.begin());
  }
  const Value ordered = b.transpose(sorted, permutation);
  return c.expanded ? b.broadcast_in_dim(ordered, l.sizes, kept) : b.reshape(ordered, l.sizes);
}

}  // namespace tpupilot::layout
