#include "pilot/recorded.h"

#include <fstream>

#include "pilot/errors.h"
#include "pilot/plan.h"

namespace tpupilot::pilot {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// Settings that change what the reference does.
constexpr std::pair<const char*, const char*> kKeys[] = {
    {"job", "seed"}, {"job", "steps"}, {"job", "steps_per_epoch"}, {"reference", "device"}, {"reference", "autocast"}};

std::string difference(const json& recorded, const json& now) {
  if (recorded.value("tool", "") != now.at("tool").get<std::string>())
    return "was recorded by tpupilot " + recorded.value("tool", "?") + ", this is " + now["tool"].get<std::string>();
  if (recorded.at("job").at("sha256") != now.at("job").at("sha256")) return "was recorded from another job file";
  for (const auto& [section, key] : kKeys) {
    const json &then = recorded.at("settings").at(section).at(key), &here = now.at("settings").at(section).at(key);
    if (then != here)
      return std::string("was recorded with ") + section + "." + key + " = " + then.dump() + ", here it is " +
             here.dump();
  }
  return "";
}

}  // namespace

void adopt_recorded(const Settings& settings, RunState& state) {
  const fs::path folder = settings.text("reference", "evidence");
  if (folder.empty() || state.done().contains("reference/base")) return;
  std::ifstream in(folder / "manifest.json");
  const json recorded = json::parse(in, nullptr, false);
  if (!recorded.is_object() || !recorded.contains("settings") || !recorded.contains("job"))
    throw Error("[reference] evidence: " + folder.string() +
                " holds no recorded run; make one with `tpupilot record`.");
  if (!recorded.value("finished", false))
    throw Error("[reference] evidence: " + folder.string() + " is not finished; run its `tpupilot record` again.");
  if (const std::string differs = difference(recorded, state.manifest()); !differs.empty())
    throw Error("[reference] evidence: " + folder.string() + " " + differs + "; record it again.");
  state.adopt(folder, "reference", tasks_after_the_candidate());
  state.set("evidence", {{"folder", fs::absolute(folder).string()},
                         {"created", recorded.value("created", json())},
                         {"config_sha256", recorded.value("config_sha256", json())}});
}

}  // namespace tpupilot::pilot
