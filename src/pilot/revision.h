// The version of a job: what its version control says.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace tpupilot::pilot {

// {"vcs": "git", "commit": "...", "dirty": bool} of the folder's repository, or null if there is none (or no git).
nlohmann::json vcs_revision(const std::filesystem::path& folder);

}  // namespace tpupilot::pilot
