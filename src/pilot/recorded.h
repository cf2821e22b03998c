// Evidence of the old environment that `record` made, perhaps on another machine.
#pragma once

#include <nlohmann/json.hpp>

#include "pilot/run_state.h"
#include "pilot/settings.h"

namespace tpupilot::pilot {

// Takes the reference side from the folder that [reference] evidence names, unless the run has it already. Error
// (Usage) if it was recorded from another job or with other settings, with what differs.
void adopt_recorded(const Settings& settings, RunState& state);

}  // namespace tpupilot::pilot
