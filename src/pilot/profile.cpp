#include "pilot/profile.h"

#include <vector>

namespace tpupilot::pilot {

namespace {

const std::vector<Profile>& profiles() {
  static const std::vector<Profile> table = {{"torch_tpu==0.2.0", "3.11", "2.11", "2.15"}};
  return table;
}

std::vector<long> parts_of(std::string_view version) {
  std::vector<long> parts;
  size_t i = 0;
  while (i < version.size() && version[i] >= '0' && version[i] <= '9') {
    long part = 0;
    for (; i < version.size() && version[i] >= '0' && version[i] <= '9'; ++i) part = part * 10 + (version[i] - '0');
    parts.push_back(part);
    if (i < version.size() && version[i] == '.') ++i;
  }
  return parts;
}

}  // namespace

int compare_versions(std::string_view left, std::string_view right) {
  const auto a = parts_of(left), b = parts_of(right);
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

const Profile* find_profile(std::string_view name) {
  for (const Profile& profile : profiles()) {
    if (profile.name == name) return &profile;
  }
  return nullptr;
}

std::string known_profiles() {
  std::string names;
  for (const Profile& profile : profiles()) names += (names.empty() ? "" : ", ") + std::string(profile.name);
  return names;
}

std::string unmet(const Profile& profile, const nlohmann::json& measured) {
  if (!measured["python"].is_string() || !measured["torch"].is_string())
    return "the worker does not know its python or torch version";
  const std::string python = measured["python"], torch = measured["torch"];
  const std::string name(profile.name);
  if (compare_versions(python, profile.python_at_least) < 0) {
    return name + " wants Python " + std::string(profile.python_at_least) + " or newer, this is " + python;
  }
  if (compare_versions(torch, profile.torch_at_least) < 0 || compare_versions(torch, profile.torch_at_most) > 0) {
    return name + " wants torch " + std::string(profile.torch_at_least) + " to " + std::string(profile.torch_at_most) +
           ", this is " + torch;
  }
  if (measured["cuda_build"].is_string())
    return name + " wants a CPU build of torch, this one is built for CUDA " +
           measured["cuda_build"].get<std::string>();
  return "";
}

}  // namespace tpupilot::pilot
