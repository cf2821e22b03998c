// SHA-256 as lower-case hex.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace tpupilot::pilot {

std::string sha256_of(const nlohmann::json& value);  // of its compact text, keys sorted

}  // namespace tpupilot::pilot
