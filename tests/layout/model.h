// What a strided view means, by loops over host memory: the reference for read and write.
#pragma once

#include <set>
#include <vector>

#include "layout/layout.h"

namespace tpupilot::layout {

// The element that each index of the view names, in row-major order of the indices.
inline std::vector<int64_t> elements(const Layout& l) {
  std::vector<int64_t> out{l.offset};
  for (size_t i = 0; i < l.sizes.size(); ++i) {
    std::vector<int64_t> next;
    for (int64_t base : out) {
      for (int64_t k = 0; k < l.sizes[i]; ++k) next.push_back(base + k * l.strides[i]);
    }
    out = std::move(next);
  }
  return out;
}

inline std::vector<float> read_on_host(const std::vector<float>& flat, const Layout& l) {
  std::vector<float> out;
  for (int64_t e : elements(l)) out.push_back(flat.at(static_cast<size_t>(e)));
  return out;
}

inline std::vector<float> write_on_host(std::vector<float> flat, const Layout& l, const std::vector<float>& value) {
  size_t next = 0;
  for (int64_t e : elements(l)) flat.at(static_cast<size_t>(e)) = value.at(next++);
  return flat;
}

inline bool overlaps_on_host(const Layout& l) {
  const std::vector<int64_t> named = elements(l);
  return std::set<int64_t>(named.begin(), named.end()).size() != named.size();
}

// ---- torch's view ops ----
inline Layout contiguous(Dims sizes) {
  Dims strides = hlo::contiguous_strides(sizes);
  return {std::move(sizes), std::move(strides), 0};
}

inline Layout sliced(Layout l, size_t dim, int64_t start, int64_t limit, int64_t step) {
  l.offset += start * l.strides[dim];
  l.sizes[dim] = (limit - start + step - 1) / step;
  l.strides[dim] *= step;
  return l;
}

inline Layout selected(Layout l, size_t dim, int64_t index) {
  l.offset += index * l.strides[dim];
  l.sizes.erase(l.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  l.strides.erase(l.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  return l;
}

inline Layout transposed(Layout l, size_t a, size_t b) {
  std::swap(l.sizes[a], l.sizes[b]);
  std::swap(l.strides[a], l.strides[b]);
  return l;
}

inline Layout unsqueezed(Layout l, size_t dim) {
  const int64_t stride = dim < l.sizes.size() ? l.sizes[dim] * l.strides[dim] : 1;
  l.sizes.insert(l.sizes.begin() + static_cast<std::ptrdiff_t>(dim), 1);
  l.strides.insert(l.strides.begin() + static_cast<std::ptrdiff_t>(dim), stride);
  return l;
}

inline Layout expanded(Layout l, size_t dim, int64_t size) {  // a dim of size 1
  l.sizes[dim] = size;
  l.strides[dim] = 0;
  return l;
}

inline Layout unfolded(Layout l, size_t dim, int64_t size, int64_t step) {
  l.sizes.push_back(size);
  l.strides.push_back(l.strides[dim]);
  l.sizes[dim] = (l.sizes[dim] - size) / step + 1;
  l.strides[dim] *= step;
  return l;
}

}  // namespace tpupilot::layout
