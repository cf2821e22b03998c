// The _upsample_*2d_aa rows: resampling whose filter grows with the scale, so that shrinking does not alias.
#pragma once

#include "ops/row.h"

namespace tpupilot::ops {

std::vector<Row> antialias_rows();

// Values computed in a floating type as the result's type: integers take the nearest one in their range.
Value rounded_to(Context& c, const Value& x, Elem elem);

}  // namespace tpupilot::ops
