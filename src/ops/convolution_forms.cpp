// What the CPU plugin does well is plain 2-d convolution, so everything else is turned into that or into multiply-adds:
// grouped convolutions are 2 to 80 times slower there, 3-d ones 6 to 11 times, window_reversal 30 to 70 times.
#include "ops/convolution_forms.h"

#include <algorithm>
#include <array>
#include <functional>

namespace tpupilot::ops {
namespace {

using hlo::Builder;
using hlo::Dims;
using hlo::Value;

constexpr int64_t kMostSlicedGroups = 16;  // a convolution of its own costs ~15 ms of compile time
constexpr size_t kMostTaps = 64;

Dims spatial_of(const Dims& dims) { return Dims(dims.begin() + 2, dims.end()); }
int64_t dilated(int64_t size, int64_t by) { return (size - 1) * by + 1; }
bool all_are(const Dims& dims, int64_t value) {
  return std::all_of(dims.begin(), dims.end(), [&](int64_t d) { return d == value; });
}

// "[b, f, 0, 1]" from "b, f".
std::string labels(std::string_view letters, size_t spatial) {
  std::string text = "[" + std::string(letters);
  for (size_t i = 0; i < spatial; ++i) text += ", " + std::to_string(i);
  return text + "]";
}
std::string numbers(std::string_view lhs, std::string_view kernel, std::string_view out, size_t spatial) {
  return labels(lhs, spatial) + "x" + labels(kernel, spatial) + "->" + labels(out, spatial);
}

// ---------------------------------------------------------------- one stablehlo.convolution

Value plain_convolve(Builder& b, const Window& p, const Value& x, const Value& w, const Dims& y_dims) {
  const size_t spatial = p.stride.size();
  hlo::Convolution a{p.stride, {}, Dims(spatial, 1), p.dilation, numbers("b, f", "o, i", "b, f", spatial), p.groups};
  for (size_t i = 0; i < spatial; ++i) {
    // output_padding >= stride (a transposed convolution with dilation) leaves more image than y has windows.
    const int64_t pad = p.padding[i], rest = x.dims()[i + 2] + 2 * pad - dilated(w.dims()[i + 2], p.dilation[i]);
    const bool fits = rest / p.stride[i] + 1 == y_dims[i + 2];
    a.padding.emplace_back(pad, fits ? pad : pad - rest + (y_dims[i + 2] - 1) * p.stride[i]);
  }
  return b.convolution(x, w, a, y_dims);
}

Value plain_image_gradient(Builder& b, const Window& p, const Value& y, const Value& w, const Dims& x_dims) {
  const size_t spatial = p.stride.size();
  const Dims k = spatial_of(w.dims());
  hlo::Convolution a{Dims(spatial, 1), {}, p.stride, p.dilation, numbers("b, f", "i, o", "b, f", spatial), p.groups};
  Dims reversed;
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t reach = p.dilation[i] * (k[i] - 1), low = reach - p.padding[i];
    a.padding.emplace_back(low, x_dims[i + 2] - dilated(y.dims()[i + 2], p.stride[i]) - low + reach);
    reversed.push_back(static_cast<int64_t>(i) + 2);
  }
  Value kernel = b.reverse(w, reversed);
  if (p.groups > 1) {  // [O, C/g, k] -> [O/g, C, k], the groups side by side in the second dim
    const int64_t outs = w.dims()[0] / p.groups, ins = w.dims()[1];
    Dims split{p.groups, outs, ins}, swapped{1, 0, 2}, joined{outs, p.groups * ins};
    for (size_t i = 0; i < spatial; ++i) {
      split.push_back(k[i]);
      swapped.push_back(static_cast<int64_t>(i) + 3);
      joined.push_back(k[i]);
    }
    kernel = b.reshape(b.transpose(b.reshape(kernel, split), swapped), joined);
  }
  return b.convolution(y, kernel, a, x_dims);
}

Value plain_weight_gradient(Builder& b, const Window& p, const Value& y, const Value& x, const Dims& w_dims) {
  const size_t spatial = p.stride.size();
  hlo::Convolution a{p.dilation, {}, Dims(spatial, 1), p.stride, numbers("f, b", "i, o", "f, b", spatial), p.groups};
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t window = dilated(y.dims()[i + 2], p.stride[i]);
    const int64_t covered = (w_dims[i + 2] - 1) * p.dilation[i] + window;
    a.padding.emplace_back(p.padding[i], covered - x.dims()[i + 2] - p.padding[i]);
  }
  if (p.groups == 1) return b.convolution(x, y, a, w_dims);
  // Images become features: [N, g C, ...] -> [C, g N, ...], so that group k of y meets group k of x.
  const int64_t images = x.dims()[0], ins = w_dims[1];
  Dims split{images, p.groups, ins}, swapped{2, 1, 0}, joined{ins, p.groups * images};
  for (size_t i = 0; i < spatial; ++i) {
    split.push_back(x.dims()[i + 2]);
    swapped.push_back(static_cast<int64_t>(i) + 3);
    joined.push_back(x.dims()[i + 2]);
  }
  a.dimension_numbers = numbers("b, f", "i, o", "f, b", spatial);
  return b.convolution(b.reshape(b.transpose(b.reshape(x, split), swapped), joined), y, a, w_dims);
}

// ---------------------------------------------------------------- depthwise: shifted multiply-adds

bool is_depthwise(const Window& p, int64_t channels, const Dims& w_dims) {
  return p.groups > 1 && p.groups == channels && static_cast<size_t>(hlo::product(spatial_of(w_dims))) <= kMostTaps;
}

// Calls f(tap coordinates) for every kernel position, in row-major order.
void for_each_tap(const Dims& kernel, const std::function<void(const Dims&)>& f) {
  Dims tap(kernel.size(), 0);
  for (int64_t n = hlo::product(kernel); n > 0; --n) {
    f(tap);
    for (size_t i = kernel.size(); i-- > 0;) {
      if (++tap[i] < kernel[i]) break;
      tap[i] = 0;
    }
  }
}

Value pad_spatial(Builder& b, const Value& x, const Dims& low, const Dims& high, const Dims& interior) {
  const auto with_channels = [](const Dims& d) {
    Dims all{0, 0};
    all.insert(all.end(), d.begin(), d.end());
    return all;
  };
  return b.pad(x, b.zeros({x.elem(), {}}), with_channels(low), with_channels(high), with_channels(interior));
}

Value slice_spatial(Builder& b, const Value& x, const Dims& start, const Dims& count, const Dims& stride) {
  Dims from{0, 0}, to{x.dims()[0], x.dims()[1]}, step{1, 1};
  for (size_t i = 0; i < start.size(); ++i) {
    from.push_back(start[i]);
    to.push_back(start[i] + (count[i] - 1) * stride[i] + 1);
    step.push_back(stride[i]);
  }
  return b.slice(x, from, to, step);
}

// Repeats each channel for the outputs that it feeds: [N, C, ...] -> [N, O, ...].
Value repeat_channels(Builder& b, const Value& x, int64_t outputs) {
  const int64_t times = outputs / x.dims()[1];
  if (times == 1) return x;
  Dims wide = x.dims(), map{0, 1}, merged = x.dims();
  wide.insert(wide.begin() + 2, times);
  for (size_t i = 2; i < x.dims().size(); ++i) map.push_back(static_cast<int64_t>(i) + 1);
  merged[1] = outputs;
  return b.reshape(b.broadcast_in_dim(x, wide, map), merged);
}

// w[:, 0, tap], broadcast over channels.
Value tap_weight(Builder& b, const Value& w, const Dims& tap, const Dims& dims) {
  Dims from{0, 0}, to{w.dims()[0], 1};
  for (int64_t t : tap) {
    from.push_back(t);
    to.push_back(t + 1);
  }
  const Value one = b.slice(w, from, to, Dims(from.size(), 1));
  return b.broadcast_in_dim(b.reshape(one, {w.dims()[0]}), dims, {1});
}

// The image, padded so that every tap's slice lies inside.
Value padded_image(Builder& b, const Window& p, const Value& x, const Dims& kernel, const Dims& y_dims) {
  Dims low = p.padding, high, none(kernel.size(), 0);
  for (size_t i = 0; i < kernel.size(); ++i) {
    const int64_t reach = dilated(y_dims[i + 2], p.stride[i]) + p.dilation[i] * (kernel[i] - 1);
    high.push_back(std::max<int64_t>(0, reach - p.padding[i] - x.dims()[i + 2]));
  }
  return pad_spatial(b, x, low, high, none);
}

Dims times(const Dims& a, const Dims& c) {
  Dims out;
  for (size_t i = 0; i < a.size(); ++i) out.push_back(a[i] * c[i]);
  return out;
}

Value depthwise_convolve(Builder& b, const Window& p, const Value& x, const Value& w, const Dims& y_dims) {
  const Dims kernel = spatial_of(w.dims());
  const Value image = repeat_channels(b, padded_image(b, p, x, kernel, y_dims), w.dims()[0]);
  Value total;
  for_each_tap(kernel, [&](const Dims& tap) {
    const Value shifted = slice_spatial(b, image, times(p.dilation, tap), spatial_of(y_dims), p.stride);
    const Value term = b.mul(shifted, tap_weight(b, w, tap, y_dims));
    total = total ? b.add(total, term) : term;
  });
  return total;
}

Value depthwise_image_gradient(Builder& b, const Window& p, const Value& y, const Value& w, const Dims& x_dims) {
  const Dims kernel = spatial_of(w.dims());
  Dims low, high, interior, out_dims = x_dims;
  out_dims[1] = w.dims()[0];
  for (size_t i = 0; i < kernel.size(); ++i) {
    low.push_back(std::max<int64_t>(0, p.dilation[i] * (kernel[i] - 1) - p.padding[i]));
    high.push_back(std::max<int64_t>(0, x_dims[i + 2] + p.padding[i] - dilated(y.dims()[i + 2], p.stride[i])));
    interior.push_back(p.stride[i] - 1);
  }
  const Value spread = pad_spatial(b, y, low, high, interior);
  Value total;
  for_each_tap(kernel, [&](const Dims& tap) {
    Dims start;
    for (size_t i = 0; i < tap.size(); ++i) start.push_back(low[i] + p.padding[i] - p.dilation[i] * tap[i]);
    const Value shifted = slice_spatial(b, spread, start, spatial_of(x_dims), Dims(tap.size(), 1));
    const Value term = b.mul(shifted, tap_weight(b, w, tap, out_dims));
    total = total ? b.add(total, term) : term;
  });
  if (w.dims()[0] == x_dims[1]) return total;
  Dims split = x_dims;
  split.insert(split.begin() + 2, w.dims()[0] / x_dims[1]);
  return b.sum(b.reshape(total, split), {2});
}

Value depthwise_weight_gradient(Builder& b, const Window& p, const Value& y, const Value& x, const Dims& w_dims) {
  const Dims kernel = spatial_of(w_dims);
  const Value image = repeat_channels(b, padded_image(b, p, x, kernel, y.dims()), w_dims[0]);
  Dims places;
  for (int64_t d = 2; d < y.rank(); ++d) places.push_back(d);
  const Value zero = b.zeros({y.elem(), {}});
  hlo::Values columns;
  for_each_tap(kernel, [&](const Dims& tap) {
    const Value shifted = slice_spatial(b, image, times(p.dilation, tap), spatial_of(y.dims()), p.stride);
    // Summed in the shape of the operands: a reshape between them would have their places computed one by one.
    const Value of_images = b.barrier(b.reduce("stablehlo.add", b.mul(shifted, y), zero, places));
    columns.push_back(b.reshape(b.sum(of_images, {0}), {w_dims[0], 1}));
  });
  return b.reshape(b.concatenate(columns, 1), w_dims);
}

// ---------------------------------------------------------------- 1x1: batched products of [C, positions] matrices

bool is_pointwise(const Window& p, const Dims& w_dims) {
  return p.groups == 1 && all_are(spatial_of(w_dims), 1) && all_are(p.padding, 0) && !spatial_of(w_dims).empty();
}
Value as_matrices(Builder& b, const Value& x) {
  return b.reshape(x, {x.dims()[0], x.dims()[1], hlo::product(spatial_of(x.dims()))});
}
Value every(Builder& b, const Window& p, const Value& x, const Dims& y_dims) {
  return slice_spatial(b, x, Dims(p.stride.size(), 0), spatial_of(y_dims), p.stride);
}

Value pointwise_convolve(Builder& b, const Window& p, const Value& x, const Value& w, const Dims& y_dims) {
  const int64_t n = x.dims()[0], o = w.dims()[0], c = w.dims()[1];
  const Value weights = b.broadcast(b.reshape(w, {o, c}), {n, o, c});
  return b.reshape(b.dot_general(weights, as_matrices(b, every(b, p, x, y_dims)), {0}, {0}, {2}, {1}), y_dims);
}

Value pointwise_image_gradient(Builder& b, const Window& p, const Value& y, const Value& w, const Dims& x_dims) {
  const int64_t n = y.dims()[0], o = w.dims()[0], c = w.dims()[1];
  const Value weights = b.broadcast(b.reshape(w, {o, c}), {n, o, c});
  Dims dense = y.dims(), high, interior;
  dense[1] = c;
  const Value gradient = b.reshape(b.dot_general(weights, as_matrices(b, y), {0}, {0}, {1}, {1}), dense);
  for (size_t i = 0; i < p.stride.size(); ++i) {
    interior.push_back(p.stride[i] - 1);
    high.push_back(x_dims[i + 2] - dilated(dense[i + 2], p.stride[i]));
  }
  return pad_spatial(b, gradient, Dims(high.size(), 0), high, interior);
}

Value pointwise_weight_gradient(Builder& b, const Window& p, const Value& y, const Value& x, const Dims& w_dims) {
  const Value products = b.dot_general(as_matrices(b, y), as_matrices(b, every(b, p, x, y.dims())), {0}, {0}, {2}, {2});
  return b.reshape(b.sum(products, {0}), w_dims);
}

// ---------------------------------------------------------------- 3-d: a sum of 2-d ones over the taps of the first
// dim

Window without_depth(const Window& p) {
  const auto rest = [](const Dims& d) { return Dims(d.begin() + 1, d.end()); };
  return {rest(p.stride), rest(p.padding), rest(p.dilation), 1};
}

// [N, C, D, H, W] -> [N D, C, H, W], and back.
Value fold_depth(Builder& b, const Value& x) {
  const Dims& d = x.dims();
  return b.reshape(b.transpose(x, {0, 2, 1, 3, 4}), {d[0] * d[2], d[1], d[3], d[4]});
}
Value unfold_depth(Builder& b, const Value& x, int64_t depth) {
  const Dims& d = x.dims();
  return b.transpose(b.reshape(x, {d[0] / depth, depth, d[1], d[2], d[3]}), {0, 2, 1, 3, 4});
}

// The planes of x that meet kernel plane `tap`, one for each plane of y.
Value planes(Builder& b, const Window& p, const Value& x, int64_t tap, int64_t y_depth) {
  const int64_t start = p.dilation[0] * tap, end = start + dilated(y_depth, p.stride[0]);
  const int64_t high = std::max<int64_t>(0, end - p.padding[0] - x.dims()[2]);
  const Value padded = b.pad(x, b.zeros({x.elem(), {}}), {0, 0, p.padding[0], 0, 0}, {0, 0, high, 0, 0}, Dims(5, 0));
  return b.slice_dim(padded, 2, start, end, p.stride[0]);
}
Value kernel_plane(Builder& b, const Value& w, int64_t tap) { return b.squeeze(b.slice_dim(w, 2, tap, tap + 1), 2); }

Value deep_convolve(Builder& b, const Window& p, const Value& x, const Value& w, const Dims& y_dims) {
  Value total;
  for (int64_t tap = 0; tap < w.dims()[2]; ++tap) {
    const Value flat = fold_depth(b, planes(b, p, x, tap, y_dims[2]));
    const Value term =
        convolve(b, without_depth(p), flat, kernel_plane(b, w, tap), {flat.dims()[0], y_dims[1], y_dims[3], y_dims[4]});
    total = total ? b.add(total, term) : term;
  }
  return unfold_depth(b, total, y_dims[2]);
}

Value deep_image_gradient(Builder& b, const Window& p, const Value& y, const Value& w, const Dims& x_dims) {
  const Value flat = fold_depth(b, y);
  const int64_t span = dilated(y.dims()[2], p.stride[0]);
  Value total;
  for (int64_t tap = 0; tap < w.dims()[2]; ++tap) {
    const Value part = image_gradient(b, without_depth(p), flat, kernel_plane(b, w, tap),
                                      {flat.dims()[0], x_dims[1], x_dims[3], x_dims[4]});
    const int64_t low = p.dilation[0] * tap - p.padding[0];
    const Value term = b.pad(unfold_depth(b, part, y.dims()[2]), b.zeros({y.elem(), {}}), {0, 0, low, 0, 0},
                             {0, 0, x_dims[2] - span - low, 0, 0}, {0, 0, p.stride[0] - 1, 0, 0});
    total = total ? b.add(total, term) : term;
  }
  return total;
}

Value deep_weight_gradient(Builder& b, const Window& p, const Value& y, const Value& x, const Dims& w_dims) {
  const Value flat = fold_depth(b, y);
  hlo::Values taps;
  for (int64_t tap = 0; tap < w_dims[2]; ++tap) {
    const Value part = weight_gradient(b, without_depth(p), flat, fold_depth(b, planes(b, p, x, tap, y.dims()[2])),
                                       {w_dims[0], w_dims[1], w_dims[3], w_dims[4]});
    taps.push_back(b.unsqueeze(part, 2));
  }
  return b.concatenate(taps, 2);
}

// ---------------------------------------------------------------- choice

// One form of the three: plain, depthwise, ...
using Form = Value (*)(Builder&, const Window&, const Value&, const Value&, const Dims&);
struct Forms {
  Form plain, depthwise, pointwise, deep;
};

Value channels(Builder& b, const Value& x, int64_t dim, int64_t group, int64_t groups) {
  const int64_t size = x.dims()[static_cast<size_t>(dim)] / groups;
  return b.slice_dim(x, dim, group * size, (group + 1) * size);
}

// `by_group` are the dims of the two operands and of the result that the groups divide.
Value choose(Builder& b, const Window& p, const Value& first, const Value& second, const Dims& out, const Dims& w_dims,
             int64_t image_channels, const Forms& forms, const std::array<int64_t, 3>& by_group) {
  if (hlo::product(out) == 0 || first.type.numel() == 0 || second.type.numel() == 0)
    return b.zeros({first.elem(), out});
  if (!b.target().cpu()) return forms.plain(b, p, first, second, out);
  if (is_depthwise(p, image_channels, w_dims)) {
    return b.by_passes(first, second, [&](const Value& x, const Value& y) { return forms.depthwise(b, p, x, y, out); });
  }
  if (p.groups > 1 && p.groups <= kMostSlicedGroups) {
    Window alone = p;
    alone.groups = 1;
    Dims part = out, w_part = w_dims;
    part[static_cast<size_t>(by_group[2])] /= p.groups;
    w_part[0] /= p.groups;
    hlo::Values parts;
    for (int64_t g = 0; g < p.groups; ++g) {
      parts.push_back(choose(b, alone, channels(b, first, by_group[0], g, p.groups),
                             channels(b, second, by_group[1], g, p.groups), part, w_part, image_channels / p.groups,
                             forms, by_group));
    }
    return b.concatenate(parts, by_group[2]);
  }
  if (p.stride.size() == 3 && p.groups == 1) return forms.deep(b, p, first, second, out);
  if (is_pointwise(p, w_dims)) return forms.pointwise(b, p, first, second, out);
  return forms.plain(b, p, first, second, out);
}

}  // namespace

Value convolve(Builder& b, const Window& p, const Value& x, const Value& w, const Dims& y_dims) {
  const Forms forms{plain_convolve, depthwise_convolve, pointwise_convolve, deep_convolve};
  return choose(b, p, x, w, y_dims, w.dims(), x.dims()[1], forms, {1, 0, 1});
}

Value image_gradient(Builder& b, const Window& p, const Value& y, const Value& w, const Dims& x_dims) {
  const Forms forms{plain_image_gradient, depthwise_image_gradient, pointwise_image_gradient, deep_image_gradient};
  return choose(b, p, y, w, x_dims, w.dims(), x_dims[1], forms, {1, 0, 1});
}

Value weight_gradient(Builder& b, const Window& p, const Value& y, const Value& x, const Dims& w_dims) {
  const Forms forms{plain_weight_gradient, depthwise_weight_gradient, pointwise_weight_gradient, deep_weight_gradient};
  return choose(b, p, y, x, w_dims, w_dims, x.dims()[1], forms, {1, 1, 0});
}

}  // namespace tpupilot::ops
