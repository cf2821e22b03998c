// The numbers that decide, fixed before the run: copied into manifest and sheet with a hash.
#pragma once

#include <nlohmann/json.hpp>

#include "pilot/settings.h"

namespace tpupilot::pilot {

// {"tolerance": {dtype: [rtol, atol]}, "judge": .., "judge_factor": {dtype: k}, "max_drift": ..}
nlohmann::json thresholds_of(const Settings& settings);

}  // namespace tpupilot::pilot
