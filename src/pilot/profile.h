// Target profiles: what a release of the TPU backend asks for. A dated list, no guess about other releases.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tpupilot::pilot {

struct Profile {
  std::string_view name;
  std::string_view python_at_least;
  std::string_view torch_at_least, torch_at_most;  // inclusive, major.minor
};

const Profile* find_profile(std::string_view name);  // null if unknown
std::string known_profiles();

// What `measured` {"python", "torch", "cuda_build"} lacks of the profile, as one sentence; "" if nothing.
std::string unmet(const Profile& profile, const nlohmann::json& measured);

// -1, 0, 1 on the numeric parts of two versions ("2.13.0+cpu" -> 2.13.0), as far as both have them.
int compare_versions(std::string_view left, std::string_view right);

}  // namespace tpupilot::pilot
