#include "pilot/sheet.h"

#include <algorithm>

#include "pilot/context.h"
#include "pilot/errors.h"
#include "pilot/fields.h"
#include "pilot/pilot.h"

namespace tpupilot::pilot {

using nlohmann::json;

Verdict gate_verdict(int gate, const Context& context) {
  if (gate == 2 && context.settings().text("distributed", "mode").empty()) return Verdict::NotApplicable;
  bool open = false, any = false;
  for (const Check& check : registry()) {
    if (static_cast<int>(check.gate) != gate || !check.must || !check.judge) continue;
    const auto judged = context.results().find(std::string(check.id));
    any = true;
    if (judged == context.results().end())
      open = true;
    else if (judged->second.verdict == Verdict::Stop)
      return Verdict::Stop;
    else if (judged->second.verdict == Verdict::NotJudged)
      open = true;
  }
  return open || !any ? Verdict::NotJudged : Verdict::Pass;
}

namespace {

class SheetBuilder {
 public:
  explicit SheetBuilder(const SheetInput& input) : in_(input) {}

  json build() {
    gates();
    checks();
    not_tested();
    json sheet = {{"schema", 1},
                  {"verdict", verdict_name(verdict_)},
                  {"asked_gates", in_.asked},
                  {"passed_gates", passed_},
                  {"ready", false},
                  {"rehearsal", rehearsal()},
                  {"injected", in_.context.injected()},
                  {"fields", fields_of(in_.context)},
                  {"checks", checks_},
                  {"not_tested", not_tested_},
                  {"series", series()},
                  {"tensors", tensors_},
                  {"files", in_.context.manifest().value("files", json::object())}};
    sheet["fields"]["not_tested"] = ids(not_tested_);
    for (auto& [name, file] : sheet["files"].items()) file = file.at("sha256");
    sheet["summary"] = summary();
    sheet["next"] = next();
    return sheet;
  }

 private:
  void gates() {
    verdict_ = Verdict::Pass;
    for (int64_t gate : in_.asked) {
      const Verdict judged =
          gate > in_.last_judged ? Verdict::NotJudged : gate_verdict(static_cast<int>(gate), in_.context);
      if (judged == Verdict::Pass || judged == Verdict::NotApplicable) {
        passed_.push_back(gate);
      } else if (verdict_ == Verdict::Pass) {
        verdict_ = judged;
        failed_gate_ = gate;
      }
    }
    const auto rerun = in_.context.results().find("dec.one-variable");
    if (rerun != in_.context.results().end() && rerun->second.verdict == Verdict::Stop) verdict_ = Verdict::Stop;
    // The inventory stands beside the gates: what the step executes and the target cannot do stops the run all the
    // same.
    for (const Check& check : registry()) {
      const auto judged = in_.context.results().find(std::string(check.id));
      if (check.gate == Gate::Inventory && judged != in_.context.results().end() &&
          judged->second.verdict == Verdict::Stop)
        verdict_ = Verdict::Stop;
    }
    if (!in_.context.injected().empty() && verdict_ == Verdict::Pass) verdict_ = Verdict::NotJudged;
  }

  void checks() {
    for (const Check& check : registry()) {
      const auto judged = in_.context.results().find(std::string(check.id));
      if (judged == in_.context.results().end()) continue;
      CheckResult result = judged->second;
      if (result.measured.is_object() && result.measured.contains("rows")) {
        for (const json& row : result.measured["rows"]) tensors_.push_back(row);
        result.measured.erase("rows");
      }
      if (check.must && result.verdict == Verdict::Stop) stopped_.push_back(std::string(check.id));
      if (check.must && result.verdict == Verdict::NotJudged && check.gate != Gate::Decision)
        open_.push_back(std::string(check.id));
      std::sort(result.evidence.begin(), result.evidence.end());
      result.evidence.erase(std::unique(result.evidence.begin(), result.evidence.end()), result.evidence.end());
      checks_.push_back({{"id", check.id},
                         {"gate", gate_field(check.gate)},
                         {"must", check.must},
                         {"verdict", verdict_name(result.verdict)},
                         {"title", check.title},
                         {"measured", result.measured},
                         {"rule", result.rule},
                         {"evidence", result.evidence},
                         {"why", result.why}});
    }
  }

  // All but a run on a TPU's own plugin.
  bool rehearsal() const {
    const auto environment = in_.context.find("candidate", "environment", "environment");
    const json device = environment ? environment->value("device", json()) : json();
    const json backend = device.is_object() ? device.value("backend", json()) : json();
    return !backend.is_object() || backend.value("platform_name", json()) != "tpu";
  }

  static json gate_field(Gate gate) {
    if (gate == Gate::Inventory) return "inventory";
    if (gate == Gate::Decision) return "decision";
    return static_cast<int>(gate);
  }

  void not_tested() {
    for (const Check& check : registry()) {
      if (in_.context.results().contains(std::string(check.id))) continue;
      not_tested_.push_back({{"id", check.id}, {"why", reason(check)}});
    }
  }

  std::string reason(const Check& check) const {
    const int gate = static_cast<int>(check.gate);
    if (!check.judge) return "not in this release";
    if (check.gate == Gate::Inventory) return "gate 1 did not run";
    if (check.gate == Gate::Decision) return "nothing to decide";
    if (std::find(in_.asked.begin(), in_.asked.end(), gate) == in_.asked.end())
      return "gate " + std::to_string(gate) + " was not asked for";
    return "the run ended at gate " + std::to_string(in_.last_judged);
  }

  static json ids(const json& entries) {
    json names = json::array();
    for (const json& entry : entries) names.push_back(entry.at("id"));
    return names;
  }

  json series() const {
    json result = {{"loss", {{"steps", json::array()}}}, {"grad_norm", {{"steps", json::array()}}}};
    const struct {
      const char *name, *side, *task;
    } lines[] = {
        {"reference", "reference", "base"}, {"candidate", "candidate", "base"}, {"float64", "reference", "float64"}};
    for (const auto& line : lines) {
      if (!in_.context.ended(line.side, line.task)) continue;
      for (const char* key : {"loss", "grad_norm"}) {
        json steps = json::array(), values = json::array();
        for (const json& step : in_.context.all(line.side, line.task, "step")) {
          steps.push_back(step.at("step"));
          values.push_back(step.contains(key) && step[key].is_number() ? step[key] : json());
        }
        if (result[key]["steps"].size() < steps.size()) result[key]["steps"] = steps;
        result[key][line.name] = values;
      }
    }
    return result;
  }

  std::string summary() const {
    std::string gates;
    for (int64_t gate : in_.asked) gates += (gates.empty() ? "" : ", ") + std::to_string(gate);
    gates = (in_.asked.size() == 1 ? "gate " : "gates ") + gates;
    if (!in_.context.injected().empty()) {
      return "TRIAL with the injected fault " + in_.context.injected() + ": " +
             (verdict_ == Verdict::Stop ? "caught by " + first(stopped_) : "not caught by a stop; never a pass") + ".";
    }
    switch (verdict_) {
      case Verdict::Pass:
        return gates + " passed on " + in_.context.settings().text("candidate", "device") + "; not shown on a TPU.";
      case Verdict::Stop:
        return (failed_gate_ < 0 ? "" : "gate " + std::to_string(failed_gate_) + ": ") + first(stopped_) + ".";
      default:
        return "gate " + std::to_string(failed_gate_) + ": " +
               (open_.empty() ? "no check of it is in this release" : first(open_)) + ".";
    }
  }

  std::string first(const std::vector<std::string>& checks) const {
    if (checks.empty()) return "no check";
    const auto judged = in_.context.results().find(checks.front());
    return checks.front() + (judged == in_.context.results().end() ? "" : ": " + judged->second.why);
  }

  json next() const {
    json steps = json::array();
    if (!in_.divergence.empty())
      steps.push_back("Look at " + in_.divergence + ": the first module that differs, with its tensors and repro.py.");
    for (const std::string& id : stopped_) steps.push_back("Put right " + first({id}) + ".");
    for (const std::string& id : open_) steps.push_back("Make it judged: " + first({id}) + ".");
    if (verdict_ == Verdict::Stop)
      steps.push_back("Then rerun with one variable changed and --parent naming this run folder.");
    if (verdict_ == Verdict::Pass)
      steps.push_back("Run the same gates on the TPU itself; then gates 2 and 3. A rehearsal is never `ready`.");
    return steps;
  }

  const SheetInput& in_;
  Verdict verdict_ = Verdict::NotJudged;
  int64_t failed_gate_ = -1;
  std::vector<int64_t> passed_;
  std::vector<std::string> stopped_, open_;
  json checks_ = json::array(), not_tested_ = json::array(), tensors_ = json::array();
};

}  // namespace

json build_sheet(const SheetInput& input) { return SheetBuilder(input).build(); }

Exit exit_code(const json& sheet) {
  const std::string verdict = sheet.at("verdict");
  if (verdict == "pass") return Exit::Passed;
  return verdict == "stop" ? Exit::Stopped : Exit::NotJudged;
}

}  // namespace tpupilot::pilot
