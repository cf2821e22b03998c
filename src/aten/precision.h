// How f32 products are made: PyTorch's own setting, and what stands for a TPU's default on a plugin that is none.
#pragma once

#include <string>

#include "hlo/target.h"

namespace tpupilot::aten {

// The passes of a contraction that is called now: torch.set_float32_matmul_precision's "medium" is one pass, "high"
// three, "highest" (the default) what rehearse_passes said, else Exact. Any thread; ~0.1 us, for ops that contract.
hlo::Passes current_passes();

// `passes` 0, 1, 3 or 6 stand for "highest" from now on, or, with `always`, for every setting. 0 without `always` is
// the start. std::invalid_argument for another number.
void rehearse_passes(int passes, bool always);

}  // namespace tpupilot::aten
