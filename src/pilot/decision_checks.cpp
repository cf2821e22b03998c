// What follows from the other checks, from the targets and from the parent run.
#include "pilot/context.h"
#include "pilot/families.h"
#include "pilot/fields.h"
#include "pilot/rerun.h"

namespace tpupilot::pilot::decision {

using nlohmann::json;

namespace {

std::string joined(const json& words) {
  std::string text;
  for (const json& word : words) text += (text.empty() ? "" : ", ") + word.get<std::string>();
  return text;
}

}  // namespace

CheckResult sheet(const Context& context) {
  const json fields = fields_of(context);
  json missing = json::array(), unknown = json::array();
  for (std::string_view name : field_names()) {
    const std::string key(name);
    if (!fields.contains(key))
      missing.push_back(key);
    else if (is_unknown(fields[key]))
      unknown.push_back(key);
  }
  CheckResult result;
  result.measured = {{"fields", field_names().size()}, {"missing", missing}, {"unknown", unknown}};
  result.rule = {{"missing", 0}};
  result.verdict = missing.empty() ? Verdict::Pass : Verdict::NotJudged;
  result.why = missing.empty()
                   ? "every field is there; " + std::to_string(unknown.size()) + " are unknown, with the reason"
                   : "these fields are missing: " + joined(missing);
  return result;
}

CheckResult targets(const Context& context) {
  const Settings& settings = context.settings();
  json unset = json::array();
  if (settings.number("target", "throughput") == 0) unset.push_back("target.throughput");
  if (settings.text("target", "memory").empty()) unset.push_back("target.memory");
  if (settings.number("target", "max_cost_per_million") == 0) unset.push_back("target.max_cost_per_million");
  if (!settings.text("target", "memory").empty()) parse_bytes(settings.text("target", "memory"));
  CheckResult result;
  result.measured = {{"unset", unset}};
  result.rule = {{"unset", 0}};
  result.verdict = unset.empty() ? Verdict::Pass : Verdict::NotJudged;
  result.why = unset.empty() ? "throughput, memory and cost targets are set"
                             : "not set: " + joined(unset) + "; the sheet cannot be ready";
  return result;
}

CheckResult stop(const Context& context) {
  json stopped = json::array(), open = json::array();
  for (const auto& [id, judged] : context.results()) {
    const Check& check = find_check(id);
    if (!check.must || check.gate == Gate::Decision) continue;
    if (judged.verdict == Verdict::Stop) stopped.push_back(id);
    if (judged.verdict == Verdict::NotJudged) open.push_back(id);
  }
  CheckResult result;
  result.measured = {{"stopped", stopped}, {"not_judged", open}};
  result.rule = {{"stopped", 0}};
  result.verdict = !stopped.empty() ? Verdict::Stop : open.empty() ? Verdict::Pass : Verdict::NotJudged;
  result.why = !stopped.empty() ? "STOP: " + joined(stopped)
               : open.empty()   ? "no check says stop"
                                : "not judged: " + joined(open);
  return result;
}

CheckResult one_variable(const Context& context) {
  CheckResult result;
  result.rule = {{"keys_that_may_differ", 1}};
  if (context.parent_manifest().is_null()) {
    result.verdict = Verdict::NotApplicable;
    result.why = "no parent run was named";
    return result;
  }
  const json changed = comparable_differences(context.parent_manifest(), context.manifest());
  json names = json::array();
  for (const auto& [name, values] : changed.items()) names.push_back(name);
  result.measured = {{"changed", changed}};
  result.verdict = changed.size() <= 1 ? Verdict::Pass : Verdict::Stop;
  result.why = changed.empty() ? "nothing changed since the parent run"
               : changed.size() == 1
                   ? "one variable changed since the parent run: " + joined(names)
                   : std::to_string(changed.size()) + " variables changed since the parent run: " + joined(names);
  return result;
}

}  // namespace tpupilot::pilot::decision
