// A run and its parent: what may be compared, and what a rerun may not do.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace tpupilot::pilot {

struct Parent {
  nlohmann::json manifest, sheet;  // null without a parent
  nlohmann::json locks{};          // {side: its lock.json}
};

// Reads manifest.json and sheet.json of `folder`; Error (Usage) if it is no finished run folder.
Parent read_parent(const std::filesystem::path& folder);

// The comparable keys of two manifests that differ: {key: {"parent": .., "now": ..}}. Comparable are the settings, the
// versions and locks, the job; not times, paths and hashes of outputs. A key that one side does not know yet is left
// out.
nlohmann::json comparable_differences(const nlohmann::json& parent, const nlohmann::json& now);

// Error (Usage) if more than one comparable key differs, or if the parent did not pass and this run raises chips, world
// size or topology. `packages`: {side: package_changes()} since the parent, to name what changed in an environment.
void refuse_bad_rerun(const Parent& parent, const nlohmann::json& manifest,
                      const nlohmann::json& packages = nlohmann::json::object());

}  // namespace tpupilot::pilot
