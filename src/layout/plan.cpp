#include "layout/plan.h"

#include <algorithm>
#include <numeric>

#include "hlo/text.h"

namespace tpupilot::layout {

using hlo::bracketed;

namespace {

// Does `next` walk on where the last step stops? Steps that reach into the one before them stay apart: a gather can
// then take the inner one in whole rows.
bool are_one(const std::vector<Step>& steps, const Step& next) {
  if (steps.empty() || steps.back().stride != next.size * next.stride) return false;
  return steps.size() == 1 || steps.back().size * steps.back().stride <= steps[steps.size() - 2].stride;
}

}  // namespace

Canonical canonical(const Layout& l) {
  Canonical c;
  for (size_t i = 0; i < l.sizes.size(); ++i) {
    if (l.sizes[i] == 1) continue;
    if (l.strides[i] == 0) {
      c.expanded = true;
    } else {
      c.sorted_dims.push_back(static_cast<int64_t>(i));
    }
  }
  std::sort(c.sorted_dims.begin(), c.sorted_dims.end(), [&](int64_t a, int64_t b) {
    const int64_t p = l.strides[static_cast<size_t>(a)], q = l.strides[static_cast<size_t>(b)];
    return p != q ? p > q : a < b;
  });
  for (int64_t d : c.sorted_dims) {
    const Step next{l.sizes[static_cast<size_t>(d)], l.strides[static_cast<size_t>(d)]};
    c.sorted_sizes.push_back(next.size);
    if (are_one(c.steps, next)) {
      c.steps.back() = {c.steps.back().size * next.size, next.stride};
    } else {
      c.steps.push_back(next);
    }
  }
  return c;
}

int64_t extent(const std::vector<Step>& steps) {
  int64_t last = 0;
  for (const Step& s : steps) last += (s.size - 1) * s.stride;
  return last + 1;
}

Plan plan(std::vector<Step> steps, int64_t offset, int64_t length) {
  Plan p;
  while (!steps.empty()) {
    const auto [size, stride] = steps.front();
    if (steps.size() == 1 && (stride == 1 || length % stride != 0)) {
      p.axes.push_back({length, offset, stride, size});
      return p;
    }
    std::vector<Step> inner(steps.begin() + 1, steps.end());
    // The largest unit that divides both the axis and the stride: where a row straddles its multiples, it straddles
    // those of every smaller one.
    const int64_t unit = std::gcd(stride, length), row = extent(inner);
    if (offset % unit + row > unit) {
      p.rest = stride < row ? Plan::Rest::Interleaved : Plan::Rest::Misaligned;
      p.rest_steps = std::move(steps);
      p.rest_offset = offset;
      p.rest_length = length;
      return p;
    }
    p.axes.push_back({length / unit, offset / unit, stride / unit, size});
    steps = std::move(inner);
    length = unit;
    offset %= unit;
  }
  p.axes.push_back({length, offset, 1, 1});
  return p;
}

std::vector<Axis> whole_axes(const Dims& dims) {
  std::vector<Axis> axes;
  for (int64_t d : dims) axes.push_back(whole_axis(d));
  return axes;
}

Dims lengths_of(const std::vector<Axis>& axes) {
  Dims lengths;
  for (const Axis& a : axes) lengths.push_back(a.length);
  return lengths;
}

hlo::Values starts_of_all(hlo::Builder& b, const std::vector<Axis>& axes, const hlo::Values& starts) {
  const hlo::Elem elem = starts.empty() ? start_elem(hlo::product(lengths_of(axes))) : starts[0].elem();
  hlo::Values all;
  size_t next = 0;
  for (const Axis& a : axes) {
    const bool given = !starts.empty() && a.has_room();
    all.push_back(given ? starts.at(next++) : b.constant_int(a.start, {elem, {}}));
  }
  return all;
}

hlo::Value read_block(hlo::Builder& b, const hlo::Value& v, const std::vector<Axis>& axes, const hlo::Values& starts) {
  Dims start, limit, stride, spans;
  bool strided = false;
  for (const Axis& a : axes) {
    start.push_back(a.start);
    limit.push_back(a.start + a.span());
    stride.push_back(a.step);
    spans.push_back(a.span());
    strided = strided || (a.count > 1 && a.step > 1);
  }
  if (starts.empty()) return b.slice(v, start, limit, stride);
  const hlo::Value window = b.dynamic_slice(v, starts_of_all(b, axes, starts), spans);
  return strided ? b.slice(window, Dims(spans.size(), 0), spans, stride) : window;
}

Placement placement(const Layout& l, int64_t length) {
  Placement p;
  if (l.numel() == 0) return p;
  const Plan cut = plan(canonical(l).steps, l.offset, length);
  for (const Axis& a : cut.axes) {
    p.form.insert(p.form.end(), {a.length, a.step, a.count});
    if (a.has_room()) p.starts.push_back(a.start);
  }
  // What no axis takes keeps its place.
  if (cut.rest != Plan::Rest::None) p.form.insert(p.form.end(), {-1, static_cast<int64_t>(cut.rest), cut.rest_offset});
  return p;
}

hlo::Value flat_indices(hlo::Builder& b, const std::vector<Step>& steps, int64_t offset, int64_t unit, int64_t length) {
  Dims sizes;
  for (const Step& s : steps) sizes.push_back(s.size);
  const hlo::Type type{start_elem(length), sizes};
  hlo::Value index;
  for (size_t i = 0; i < steps.size(); ++i) {
    const hlo::Value counter = b.iota(type, static_cast<int64_t>(i));
    const int64_t stride = steps[i].stride / unit;
    const hlo::Value term = stride == 1 ? counter : b.mul(counter, b.constant_int(stride, type));
    index = index ? b.add(index, term) : term;
  }
  if (offset / unit != 0) index = b.add(index, b.constant_int(offset / unit, type));
  return b.reshape(index, {hlo::product(sizes), 1});
}

std::string described(const Layout& l) {
  return "sizes " + bracketed(l.sizes) + ", strides " + bracketed(l.strides) + ", offset " + std::to_string(l.offset);
}

void check_bounds(const char* function, const Layout& l, int64_t length) {
  const std::string where = "[" + std::string(function) + "] " + described(l);
  if (l.sizes.size() != l.strides.size()) throw hlo::Error(where + ": as many strides as sizes are needed");
  const auto negative = [](int64_t v) { return v < 0; };
  if (l.offset < 0 || std::any_of(l.sizes.begin(), l.sizes.end(), negative) ||
      std::any_of(l.strides.begin(), l.strides.end(), negative)) {
    throw hlo::Error(where + ": negative numbers");
  }
  if (end(l) > length) {
    throw hlo::Error(where + " reach to " + std::to_string(end(l)) + " in a buffer of " + std::to_string(length) +
                     " elements");
  }
}

}  // namespace tpupilot::layout
