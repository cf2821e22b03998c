// Locks: what is installed in an environment, and how it changed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tpupilot::pilot {

class Context;

// Two locks are lists of {"name", "version", "record_sha256"}. {name: {"before": version, "now": version}} of what
// differs; null where it is not installed. The same version with other files (the hash of its RECORD differs) says so.
nlohmann::json package_changes(const nlohmann::json& before, const nlohmann::json& now);

// {side: package_changes() since the parent run}; empty without a parent whose locks are known.
nlohmann::json package_changes_since(const Context& context);

// "numpy 2.1.0 -> 2.2.0, six not installed -> 1.17.0 and 3 more"; "" if nothing changed.
std::string describe_changes(const nlohmann::json& changes);

// What changed between an `environment` event and a later `packages` event of the same side, in words: the
// interpreter's version and the packages. "" if nothing did.
std::string environment_change(const nlohmann::json& environment, const nlohmann::json& later);

}  // namespace tpupilot::pilot
