#include "pilot/rerun.h"

#include <fstream>

#include "pilot/errors.h"
#include "pilot/packages.h"

namespace tpupilot::pilot {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

json read_json(const fs::path& file) {
  std::ifstream in(file);
  if (!in) throw Error("[--parent] " + file.string() + " cannot be read; name the folder of a finished run.");
  json value = json::parse(in, nullptr, false);
  if (!value.is_object()) throw Error("[--parent] " + file.string() + " is not JSON of a run.");
  return value;
}

// section.key of the settings, and the entries of "comparable".
json flat(const json& manifest) {
  json keys = json::object();
  const json settings = manifest.value("settings", json::object());
  for (const auto& [section, entries] : settings.items()) {
    if (!entries.is_object()) continue;
    for (const auto& [name, value] : entries.items()) keys[section + "." + name] = value;
  }
  const json comparable = manifest.value("comparable", json::object());
  for (const auto& [name, value] : comparable.items()) {
    if (!value.is_null()) keys[name] = value;
  }
  // Which gates are asked and who answers for it do not change what a gate measures; behind the paths stand hashes.
  for (const char* name : {"pilot.gates", "pilot.owner", "pilot.step_timeout", "reference.python", "candidate.python",
                           "candidate.plugin", "job.file"}) {
    keys.erase(name);
  }
  return keys;
}

}  // namespace

Parent read_parent(const fs::path& folder) {
  if (folder.empty()) return {};
  Parent parent{read_json(folder / "manifest.json"), read_json(folder / "sheet.json"), json::object()};
  for (const char* side : {"reference", "candidate"}) {
    std::ifstream in(folder / side / "lock.json");
    parent.locks[side] = json::parse(in, nullptr, false);
    if (!parent.locks[side].is_array()) parent.locks.erase(side);
  }
  return parent;
}

json comparable_differences(const json& parent, const json& now) {
  const json before = flat(parent), after = flat(now);
  json changed = json::object();
  for (const auto& [name, value] : after.items()) {
    if (before.contains(name) && before[name] != value) changed[name] = {{"parent", before[name]}, {"now", value}};
  }
  // One interpreter that serves both sides is one variable.
  const char *reference = "reference.environment_sha256", *candidate = "candidate.environment_sha256";
  if (changed.contains(reference) && changed.contains(candidate) && changed[reference] == changed[candidate])
    changed.erase(reference);
  return changed;
}

void refuse_bad_rerun(const Parent& parent, const json& manifest, const json& packages) {
  if (parent.manifest.is_null()) return;
  const json changed = comparable_differences(parent.manifest, manifest);
  if (changed.size() > 1) {
    std::string names;
    for (const auto& [name, values] : changed.items()) {
      names += (names.empty() ? "" : ", ") + name;
      const std::string side = name.substr(0, name.find('.'));
      if (name == side + ".environment_sha256" && packages.contains(side))
        names += " (" + describe_changes(packages[side]) + ")";
    }
    throw Error("[--parent] a rerun may change one variable; this one changes " + std::to_string(changed.size()) +
                ": " + names + ". Change one at a time, or run without --parent.");
  }
  const std::string verdict = parent.sheet.value("verdict", "not-judged");
  if (verdict == "pass") return;
  for (const char* name : {"target.chips", "distributed.world_size", "fit.slices"}) {
    if (!changed.contains(name)) continue;
    const json &before = changed[name]["parent"], &after = changed[name]["now"];
    if (before.is_number() && after < before) continue;
    throw Error(std::string("[--parent] the parent run ended `") + verdict + "`: a rerun may not raise " + name + " (" +
                before.dump() + " -> " + after.dump() + ") before it passes.");
  }
}

}  // namespace tpupilot::pilot
