// The upsample_* rows (nearest, nearest-exact, linear in 1 to 3 dims); pooling_rows() lists them with its own.
#pragma once

#include "ops/row.h"

namespace tpupilot::ops {

std::vector<Row> resample_rows();

}  // namespace tpupilot::ops
