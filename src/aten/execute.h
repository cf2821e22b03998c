// Compiling and running programs on the runtime's client, with debug mode and bookkeeping in one place.
#pragma once

#include <span>

#include "aten/runtime.h"
#include "hlo/builder.h"

namespace tpupilot::aten {

// From the executable cache, or compiled. `results` are the builder's results.
std::shared_ptr<pjrt::Executable> compile(const hlo::Builder& builder, const hlo::Values& results,
                                          const pjrt::CompileOptions& options);

// Enqueues. Results are noted as pending, as those of `what` (an op; lives as long as the process); in debug mode they
// are waited for. `prompt`: the plugin has the results when it returns if the arguments hold values; then nobody has to
// ask for them (0.3 us a result, a tenth of a small op).
void execute(const pjrt::Executable& executable, std::span<pjrt::Buffer* const> arguments, c10::DeviceIndex device,
             std::span<BufferRef> results, const std::string& what, bool prompt = false);

}  // namespace tpupilot::aten
