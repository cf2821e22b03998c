// The sheet as one HTML page: no network, no script, plots as inline SVG.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tpupilot::report {

std::string html(const nlohmann::json& sheet);

}  // namespace tpupilot::report
