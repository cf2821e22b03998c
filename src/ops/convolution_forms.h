// The three linear maps of a convolution, in the form that is fast on the target. All take and give torch's layouts:
// image x [N, C, spatial...], weight w [O, C / groups, kernel...], output y [N, O, spatial...]. Operands have one float
// type. A transposed convolution is the image gradient of a plain one, with the roles of x and y swapped.
#pragma once

#include "hlo/builder.h"

namespace tpupilot::ops {

struct Window {
  hlo::Dims stride, padding, dilation;  // one entry a spatial dim
  int64_t groups = 1;
};

hlo::Value convolve(hlo::Builder& b, const Window& window, const hlo::Value& x, const hlo::Value& w,
                    const hlo::Dims& y_dims);
hlo::Value image_gradient(hlo::Builder& b, const Window& window, const hlo::Value& y, const hlo::Value& w,
                          const hlo::Dims& x_dims);
hlo::Value weight_gradient(hlo::Builder& b, const Window& window, const hlo::Value& y, const hlo::Value& x,
                           const hlo::Dims& w_dims);

}  // namespace tpupilot::ops
