#include "pilot/packages.h"

#include <map>

#include "pilot/context.h"

namespace tpupilot::pilot {

using nlohmann::json;

namespace {

std::map<std::string, json> by_name(const json& lock) {
  std::map<std::string, json> packages;
  for (const json& package : lock.is_array() ? lock : json::array()) packages[package.value("name", "")] = package;
  return packages;
}

json version_of(const std::map<std::string, json>& packages, const std::string& name) {
  const auto package = packages.find(name);
  return package == packages.end() ? json() : package->second.value("version", json("?"));
}

std::string text(const json& version) { return version.is_string() ? version.get<std::string>() : "not installed"; }

}  // namespace

json package_changes(const json& before, const json& now) {
  const auto then = by_name(before), here = by_name(now);
  json changes = json::object();
  for (const auto* packages : {&then, &here}) {
    for (const auto& [name, package] : *packages) {
      json old_version = version_of(then, name), new_version = version_of(here, name);
      const bool both = then.contains(name) && here.contains(name);
      if (both && then.at(name) == here.at(name)) continue;
      if (both && old_version == new_version) new_version = text(new_version) + " (other files)";
      changes[name] = {{"before", old_version}, {"now", new_version}};
    }
  }
  return changes;
}

json package_changes_since(const Context& context) {
  json changes = json::object();
  const json& parent = context.parent_manifest();
  if (!parent.is_object()) return changes;
  const json locks = parent.value("locks", json::object());
  for (const auto& [side, lock] : locks.items())
    changes[side] = package_changes(lock, context.need(side, "environment", "environment").at("packages"));
  return changes;
}

std::string describe_changes(const json& changes) {
  constexpr size_t kMost = 4;
  std::string words;
  size_t count = 0;
  for (const auto& [name, versions] : changes.items()) {
    if (++count > kMost) continue;
    words += (count == 1 ? "" : ", ") + name + " " + text(versions.at("before")) + " -> " + text(versions.at("now"));
  }
  return count > kMost ? words + " and " + std::to_string(count - kMost) + " more" : words;
}

std::string environment_change(const json& environment, const json& later) {
  json changes = package_changes(environment.value("packages", json()), later.value("packages", json()));
  const json before = environment.value("python", json()), now = later.value("python", json());
  if (before != now) changes["Python"] = {{"before", before}, {"now", now}};
  return describe_changes(changes);
}

}  // namespace tpupilot::pilot
