// Runs a builder's program on the XLA CPU plugin, so that tests can check numbers.
#pragma once

#include "pjrt/compile_options.h"
#include "support/array.h"

namespace tpupilot::test {

// Compiles `results` as a module, executes it with one input for each parameter, returns the results in order.
std::vector<Array> evaluate(const hlo::Builder& b, const hlo::Values& results, const std::vector<Array>& inputs = {},
                            const pjrt::CompileOptions& options = pjrt::eager_options());

// The same for text that was made elsewhere.
std::vector<Array> evaluate(const std::string& module, const std::vector<hlo::Type>& results,
                            const std::vector<Array>& inputs,
                            const pjrt::CompileOptions& options = pjrt::eager_options());

}  // namespace tpupilot::test
