// Boolean masks among index tensors: their count is data. Before such a call is keyed, each mask becomes the coordinates of its
// true elements (one host read each), as core does for every other device.
#pragma once

#include <ATen/core/stack.h>

#include "aten/signature.h"

namespace tpupilot::aten {

// Replaces masks in Tensor?[] arguments on the stack. Raises IndexError if a mask's shape does not fit the indexed tensor.
void expand_masks(const SchemaFacts& facts, torch::jit::Stack* stack);

}  // namespace tpupilot::aten
