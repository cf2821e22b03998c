// A worker's `error` event in words.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tpupilot::pilot {

// "ValueError in loss at step 0 (job.py:17): labels are not one-hot"
std::string describe_error(const nlohmann::json& event);

// The same with the job's own frames, the innermost last, as Python prints them.
std::string trimmed_traceback(const nlohmann::json& event);

}  // namespace tpupilot::pilot
