// Sorting and binary search, as the rows that need an order share them. NaN counts as the largest value, as in ATen.
#pragma once

#include "hlo/builder.h"

namespace tpupilot::ops {

struct Sorted {
  hlo::Value values, indices;  // indices: S64, into x along the dim
};

// Stable. `x` has at least one dim.
Sorted sorted(hlo::Builder& b, const hlo::Value& x, int64_t dim, bool descending);

// For each element of `values`, how many elements of its sorted row come before it (`right`: are not above it), as S64
// of the values' shape. `rows` is either one-dimensional, for all values, or of the values' shape but for the last dim.
// NaN comes after all. `sorter`: the order of each row, where rows are not sorted themselves; may be empty.
hlo::Value search_sorted(hlo::Builder& b, const hlo::Value& rows, const hlo::Value& values, bool right,
                         const hlo::Value& sorter = {});

}  // namespace tpupilot::ops
