// Calls whose shapes depend on values: what must happen to their arguments before they get a key. Boolean masks among
// index tensors become the coordinates of their true elements (one host read each), as core does for every other
// device; the result of arange is resized to the size that its bounds give.
#pragma once

#include <ATen/core/stack.h>

#include "aten/signature.h"

namespace tpupilot::aten {

// Does what facts.preparation asks for. Raises IndexError if a mask's shape does not fit the indexed tensor, and
// arange's and random_'s own errors for bounds that make no sense.
void prepare(const SchemaFacts& facts, torch::jit::Stack* stack);

}  // namespace tpupilot::aten
