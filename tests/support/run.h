// Runs a builder's program on the XLA CPU plugin, so that tests can check numbers.
#pragma once

#include "pjrt/compile_options.h"
#include "support/array.h"

namespace tpupilot::test {

// Compiles `results` as a module, executes it with one input for each parameter, returns the results in order. Throws
// if the builder calls the program small_elementwise() and the plugin does not have the results when it returns.
std::vector<Array> evaluate(const hlo::Builder& b, const hlo::Values& results, const std::vector<Array>& inputs = {},
                            const pjrt::CompileOptions& options = pjrt::eager_options());

// The same for text that was made elsewhere. `prompt`: throw if the results are not there at once.
std::vector<Array> evaluate(const std::string& module, const std::vector<hlo::Type>& results,
                            const std::vector<Array>& inputs,
                            const pjrt::CompileOptions& options = pjrt::eager_options(), bool prompt = false);

}  // namespace tpupilot::test
