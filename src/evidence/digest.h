// Files as text, and SHA-256 as lower-case hex.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace tpupilot::evidence {

std::string sha256_of(const nlohmann::json& value);  // of its compact text, keys sorted
std::string sha256_of_file(const std::filesystem::path& file,
                           std::uintmax_t first_bytes = UINTMAX_MAX);  // "" if unreadable

std::string read_text(const std::filesystem::path& file);  // Error (Usage) if unreadable

}  // namespace tpupilot::evidence
