// Fused optimizer steps. The foreach and for-loop forms of torch.optim need nothing beyond the element-wise rows.
#include "ops/row.h"

namespace tpupilot::ops {

std::vector<Row> optimizer_rows() { return {}; }

}  // namespace tpupilot::ops
