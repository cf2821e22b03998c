// After a stop: the first module whose inputs agree and whose output does not.
#pragma once

#include <string>

#include "pilot/context.h"
#include "pilot/run_state.h"
#include "pilot/settings.h"

namespace tpupilot::pilot {

// Writes isolate/ into the run folder if par.first-divergence found a module. Returns "isolate", or "".
std::string write_isolate(const Job& job, RunState& state, const Context& context);

}  // namespace tpupilot::pilot
