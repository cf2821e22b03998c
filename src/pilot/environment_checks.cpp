// Gate 0: what the two environment events say.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "pilot/context.h"
#include "pilot/families.h"
#include "pilot/packages.h"
#include "pilot/profile.h"

namespace tpupilot::pilot::environment {

using nlohmann::json;

namespace {

const json& at(const json& object, const char* first, const char* second) {
  static const json null;
  if (!object.contains(first) || !object[first].is_object() || !object[first].contains(second)) return null;
  return object[first][second];
}

json of(const Context& context, const std::string& side) { return context.need(side, "environment", "environment"); }

std::vector<std::string> both_events() { return {"reference/events.jsonl", "candidate/events.jsonl"}; }

CheckResult result(Verdict verdict, const json& measured, const std::string& why,
                   const std::vector<std::string>& evidence = {"candidate/events.jsonl"}) {
  CheckResult result;
  result.verdict = verdict;
  result.measured = measured;
  result.why = why;
  result.evidence = evidence;
  return result;
}

std::map<std::string, json> packages_of(const json& environment) {
  std::map<std::string, json> packages;
  for (const json& package : environment.value("packages", json::array())) packages[package.at("name")] = package;
  return packages;
}

// Names of the entries of two flat objects that differ, with both values.
json differences(const json& reference, const json& candidate) {
  json found = json::object();
  for (const auto& [name, value] : reference.items()) {
    const json other = candidate.contains(name) ? candidate[name] : json();
    if (value != other) found[name] = {{"reference", value}, {"candidate", other}};
  }
  for (const auto& [name, value] : candidate.items()) {
    if (!reference.contains(name)) found[name] = {{"reference", nullptr}, {"candidate", value}};
  }
  return found;
}

// For the reader of a rerun. Whether it is the one variable that changed is asked where all of them are known.
std::string since_parent(const json& changes) {
  std::string words;
  for (const auto& [side, packages] : changes.items()) {
    if (!packages.empty()) words += "; since the parent run the " + side + " changed: " + describe_changes(packages);
  }
  return words;
}

}  // namespace

CheckResult isolated(const Context& context) {
  const json reference = of(context, "reference"), candidate = of(context, "candidate");
  json measured;
  for (const char* key : {"executable", "prefix", "base_prefix"}) {
    measured[key] = {{"reference", reference.value(key, json())}, {"candidate", candidate.value(key, json())}};
  }
  if (reference.value("prefix", json()) == candidate.value("prefix", json())) {
    return result(Verdict::NotApplicable, measured, "one interpreter serves both sides: this is a rehearsal",
                  both_events());
  }
  return result(Verdict::Pass, measured, "the two sides have environments of their own", both_events());
}

CheckResult python(const Context& context) {
  const json candidate = of(context, "candidate");
  const std::string name = context.settings().text("candidate", "profile");
  json measured = {{"python", candidate.value("python", json())},
                   {"torch", at(candidate, "torch", "version")},
                   {"cuda_build", at(candidate, "torch", "cuda")},
                   {"profile", name}};
  if (name == "none")
    return result(Verdict::NotApplicable, measured, "candidate.profile is none: no release to compare with");
  const Profile* profile = find_profile(name);
  if (!profile)
    return result(Verdict::NotJudged, measured,
                  "no dated list for the release " + name + "; known: " + known_profiles());
  const auto wrong = unmet(*profile, measured);
  CheckResult judged = result(wrong.empty() ? Verdict::Pass : Verdict::Stop, measured,
                              wrong.empty() ? "inside the ranges of " + name : wrong);
  judged.rule = {{"python_at_least", profile->python_at_least},
                 {"torch", {profile->torch_at_least, profile->torch_at_most}},
                 {"cpu_build_of_torch", true}};
  return judged;
}

CheckResult pinned(const Context& context) {
  json measured = json::object(), unpinned = json::array();
  for (const std::string side : {"reference", "candidate"}) {
    const auto packages = packages_of(of(context, side));
    for (const auto& [name, package] : packages) {
      if (!package.value("version", json()).is_string() || !package.value("record_sha256", json()).is_string()) {
        unpinned.push_back(side + ": " + name);
      }
    }
    measured[side] = {{"packages", packages.size()}, {"lock_sha256", context.lock_hash(side)}};
  }
  measured["without_record"] = unpinned;
  measured["changed_since_parent"] = package_changes_since(context);
  std::vector<std::string> evidence = {"reference/lock.json", "candidate/lock.json"};
  if (unpinned.empty())
    return result(Verdict::Pass, measured,
                  "every package has a version and a RECORD hash" + since_parent(measured["changed_since_parent"]),
                  evidence);
  return result(Verdict::NotJudged, measured,
                std::to_string(unpinned.size()) + " packages have no version or no RECORD file, first " +
                    unpinned[0].get<std::string>() + "; install them with pip",
                evidence);
}

CheckResult build_match(const Context& context) {
  const json candidate = of(context, "candidate");
  json measured = {{"libraries", candidate.value("build", json::array())},
                   {"device_error", at(candidate, "device", "import_error")}};
  for (const json& library : measured["libraries"]) {
    if (library.value("import_error", json()).is_string()) {
      return result(
          Verdict::Stop, measured,
          library["module"].get<std::string>() + " does not load: " + library["import_error"].get<std::string>());
    }
  }
  if (measured["device_error"].is_string()) {
    return result(Verdict::Stop, measured, "the backend does not load: " + measured["device_error"].get<std::string>());
  }
  return result(Verdict::Pass, measured,
                std::to_string(measured["libraries"].size()) + " compiled libraries and the backend load");
}

CheckResult backend_proof(const Context& context) {
  const json candidate = of(context, "candidate");
  const std::string device = context.settings().text("candidate", "device");
  json measured = {{"device", candidate.value("device", json())},
                   {"op_trace", at(candidate, "smoke", "ops")},
                   {"device_of_result", at(candidate, "smoke", "device_of_result")}};
  if (at(candidate, "device", "available") != true) {
    const json error = at(candidate, "device", "import_error");
    return result(Verdict::Stop, measured,
                  "device `" + device + "` is not available in the candidate's interpreter" +
                      (error.is_string() ? ": " + error.get<std::string>() : "") +
                      "; install its backend there, or name another device with candidate.device");
  }
  if (context.self_rehearsal()) {
    return result(Verdict::NotApplicable, measured,
                  "the candidate's device is the reference's own (" + device +
                      "): there is no backend to prove, and nothing is said about a TPU");
  }
  const std::string kind = device.substr(0, device.find(':'));
  const json on = measured["device_of_result"], ops = measured["op_trace"];
  if (!ops.is_array() || ops.empty() || !on.is_string() || on.get<std::string>().rfind(kind, 0) != 0) {
    return result(Verdict::Stop, measured,
                  "no op is seen to run on `" + device + "`: the smoke result lives on " + on.dump());
  }
  if (!at(candidate["device"], "backend", "vendor").is_string()) {
    return result(Verdict::NotJudged, measured, "the backend does not say who made it (vendor is unknown)");
  }
  return result(Verdict::Pass, measured,
                std::to_string(ops.size()) + " ops ran on " + on.get<std::string>() + " of " +
                    candidate["device"]["backend"]["vendor"].get<std::string>());
}

CheckResult smoke(const Context& context) {
  const json measured = of(context, "candidate").value("smoke", json());
  const bool bf16 = context.settings().text("candidate", "numerics") == "tpu";
  // A 64-long dot product: 64 roundings of values near 64 in the worst case; one bf16 pass rounds each factor to 2^-9.
  const double limit = bf16 ? 64 * 64 * 0x1p-9 / 8 : 64 * 64 * 0x1p-24;
  CheckResult judged = result(Verdict::Pass, measured, "", {"candidate/events.jsonl"});
  judged.rule = {{"max_abs_difference", limit}, {"shape", {64, 64}}};
  if (!measured.is_object() || !measured.value("max_abs_difference", json()).is_number()) {
    judged.verdict = Verdict::Stop;
    judged.why = "no tensor could be made, multiplied and copied back";
    return judged;
  }
  const double difference = measured["max_abs_difference"];
  const bool good = difference <= limit && measured.value("shape", json()) == json({64, 64});
  judged.verdict = good ? Verdict::Pass : Verdict::Stop;
  std::ostringstream why;
  why << "matmul differs from the CPU's by at most " << difference << (good ? "" : ", more than ")
      << (good ? "" : std::to_string(limit));
  judged.why = why.str();
  return judged;
}

CheckResult settings(const Context& context) {
  const json reference = of(context, "reference"), candidate = of(context, "candidate");
  json measured;
  for (const auto& [side, environment] :
       {std::pair<const char*, const json&>{"reference", reference}, {"candidate", candidate}}) {
    for (const char* key : {"settings", "environment_variables", "working_directory", "arguments"}) {
      measured[side][key] = environment.value(key, json());
      if (measured[side][key].is_null())
        return result(Verdict::NotJudged, measured, std::string(side) + " recorded no " + key, both_events());
    }
  }
  const json fallback = at(candidate, "environment_variables", "TPUPILOT_FALLBACK");
  if (fallback.is_string() && fallback != "error") {
    return result(Verdict::Stop, measured,
                  "TPUPILOT_FALLBACK=" + fallback.get<std::string>() +
                      ": a CPU fallback would hide what the device cannot do; unset it",
                  both_events());
  }
  return result(Verdict::Pass, measured, "settings of both sides are recorded; no CPU fallback", both_events());
}

CheckResult exclusive(const Context& context) {
  const json holders = at(of(context, "candidate"), "device", "holders");
  if (context.settings().text("candidate", "device") == "cpu")
    return result(Verdict::NotApplicable, holders, "a CPU is shared by nature");
  if (!holders.is_array()) return result(Verdict::NotJudged, holders, "the backend does not say who holds the device");
  if (holders.empty()) return result(Verdict::Pass, holders, "nobody else holds the device");
  return result(Verdict::Stop, holders, "the device is held by process " + holders[0].dump());
}

CheckResult reference_diff(const Context& context) {
  const json reference = of(context, "reference"), candidate = of(context, "candidate");
  json versions[2];
  for (int i = 0; i < 2; ++i) {
    versions[i] = json::object();
    for (const auto& [name, package] : packages_of(i ? candidate : reference))
      versions[i][name] = package.value("version", json());
  }
  json measured = {{"packages", differences(versions[0], versions[1])}};
  for (const char* key : {"environment_variables", "settings", "torch"}) {
    measured[key] = differences(reference.value(key, json::object()), candidate.value(key, json::object()));
  }
  size_t count = 0;
  for (const auto& [kind, found] : measured.items()) count += found.size();
  return result(Verdict::Pass, measured,
                count == 0 ? "no difference in packages, variables and settings"
                           : std::to_string(count) + " differences between the sides are listed",
                both_events());
}

}  // namespace tpupilot::pilot::environment
