// Sliding windows along one dim. Pooling is separable: the window of several dims is a window of windows, which costs
// the sum of the window's sizes instead of their product.
#pragma once

#include "hlo/builder.h"

namespace tpupilot::ops {

struct Window1d {
  int64_t dim = 0, size = 1, stride = 1, padding = 0, dilation = 1;
  int64_t count = 1;  // how many windows
};

// x padded (or cut) along w.dim with `fill`, so that window i covers elements i stride + t dilation, t < size.
hlo::Value padded_for(hlo::Builder& b, const hlo::Value& x, const Window1d& w, const hlo::Value& fill);
// The t-th element of every window of a padded x.
hlo::Value tap(hlo::Builder& b, const hlo::Value& padded, const Window1d& w, int64_t t);

// Sums over the windows; elements outside of x count 0. No dilation.
hlo::Value window_sum(hlo::Builder& b, const hlo::Value& x, const Window1d& w);
// The transpose of window_sum: each of g's elements goes to all `length` elements that its window covers.
hlo::Value window_spread(hlo::Builder& b, const hlo::Value& g, const Window1d& w, int64_t length);

// Maxima over the windows, and where they stand along w.dim, S32. As in ATen the first of equal elements wins, and the
// last NaN. `carried` (S32, x's shape; may be empty) is what is known of each element; it follows the maximum.
struct Maximum {
  hlo::Value value, place, carried;
};
Maximum window_max(hlo::Builder& b, const hlo::Value& x, const hlo::Value& carried, const Window1d& w);

}  // namespace tpupilot::ops
