// Gate 1: the custom operators that the job names, on the job's own inputs and on boundary inputs made from them.
#include <map>

#include "pilot/comparison.h"
#include "pilot/context.h"
#include "pilot/families.h"
#include "pilot/job_error.h"
#include "pilot/job_form.h"

namespace tpupilot::pilot::operators {

using nlohmann::json;

namespace {

using Case = std::pair<std::string, std::string>;  // operator, input

struct Sides {
  json reference, candidate;
};

std::map<Case, Sides> cases_of(const Context& context, const std::string& what) {
  std::map<Case, Sides> cases;
  for (const std::string side : {"reference", "candidate"}) {
    for (const json& event : context.all(side, "custom-ops", "operator")) {
      if (event.at("what") != what) continue;
      Sides& sides = cases[{event.at("operator"), event.at("input")}];
      (side == "reference" ? sides.reference : sides.candidate) = event;
    }
  }
  return cases;
}

std::string name_of(const Case& one) { return one.first + " on the input `" + one.second + "`"; }

std::string error_text(const json& error) {
  return error.at("type").get<std::string>() + " in " + error.at("phase").get<std::string>() + ": " +
         error.at("message").get<std::string>();
}

// An operator whose kernel the device lacks.
std::string advice(const json& error, const std::string& device) {
  if (error.at("type") != "NotImplementedError") return "";
  return "; give it a kernel for `" + device +
         "`, or write it out of PyTorch's own operators with torch.library.custom_op, which run on every device";
}

bool alike(const json& a, const json& b) { return a.at("type") == b.at("type") && a.at("phase") == b.at("phase"); }

struct Survey {
  std::string stop, open;               // the first finding of each kind
  size_t raised_alike = 0, weaker = 0;  // inputs; `weaker`: without a float64 run
  json errors = json::array();
};

class Surveyor {
 public:
  Surveyor(const Context& context, const std::string& what)
      : device_(context.settings().text("candidate", "device")), cases_(cases_of(context, what)) {}

  size_t count() const { return cases_.size(); }

  Survey look() {
    for (const auto& [name, sides] : cases_) {
      if (sides.reference.is_null() || sides.candidate.is_null())
        stop(name_of(name) + " was run on one side only");
      else if (sides.reference.at("inputs_sha256") != sides.candidate.at("inputs_sha256"))
        open(name_of(name) + " got other values in each process: custom_ops() must give the same inputs each time");
      else
        look_at(name, sides);
    }
    return survey_;
  }

 private:
  void look_at(const Case& name, const Sides& sides) {
    const json &reference = sides.reference.at("error"), &candidate = sides.candidate.at("error");
    survey_.weaker += sides.reference.at("float64_error").is_string();
    if (!reference.is_null() || !candidate.is_null())
      survey_.errors.push_back(
          {{"operator", name.first}, {"input", name.second}, {"reference", reference}, {"candidate", candidate}});
    if (reference.is_null() && candidate.is_null()) return look_where(name, sides.candidate);
    if (candidate.is_null())
      stop(name_of(name) + " raises on the reference only: " + error_text(reference));
    else if (reference.is_null())
      stop(name_of(name) + " raises on the candidate only: " + error_text(candidate) + advice(candidate, device_));
    else if (!alike(reference, candidate))
      stop(name_of(name) + " raises " + error_text(candidate) + advice(candidate, device_) +
           "; the reference: " + error_text(reference));
    else
      ++survey_.raised_alike;
  }

  // A result that lies elsewhere was computed elsewhere.
  void look_where(const Case& name, const json& candidate) {
    const std::string kind = device_.substr(0, device_.find(':'));
    for (const json& device : candidate.at("devices")) {
      if (device != kind) stop(name_of(name) + " left its result on `" + device.get<std::string>() + "`");
    }
  }

  void stop(const std::string& what) {
    if (survey_.stop.empty()) survey_.stop = what;
  }
  void open(const std::string& what) {
    if (survey_.open.empty()) survey_.open = what;
  }

  std::string device_;
  std::map<Case, Sides> cases_;
  Survey survey_;
};

// The last operator that a process began and did not end.
std::string begun(const Context& context) {
  std::string last;
  for (const json& event : context.killed("candidate", "custom-ops")) {
    if (event.at("event") == "progress") last = event.at("message");
  }
  return last;
}

// What torch.library.opcheck says on each side. `worse`: the candidate fails a test that the reference passes.
struct Registration {
  json table = json::object();
  std::string worse, failed;
};

Registration registration(const Context& context) {
  Registration result;
  const json reference = context.need("reference", "custom-ops", "operators").at("opcheck"),
             candidate = context.need("candidate", "custom-ops", "operators").at("opcheck");
  result.table = {{"reference", reference}, {"candidate", candidate}};
  for (const auto& [name, tests] : candidate.items()) {
    for (const auto& [test, outcome] : tests.items()) {
      const std::string text = outcome;
      if (!text.starts_with("failed")) continue;
      const std::string there = reference.value(name, json::object()).value(test, "unavailable");
      std::string& finding = there == "passed" ? result.worse : result.failed;
      if (finding.empty()) finding = "torch.library.opcheck of " + name + ", " + test + " " + text;
    }
  }
  return result;
}

CheckResult verdict(Verdict verdict, std::string why, json measured, std::vector<std::string> evidence = {}) {
  CheckResult result;
  result.verdict = verdict;
  result.why = std::move(why);
  result.measured = std::move(measured);
  result.rule = {{"numbers", "as par.*"}, {"errors", "of one type, in the same phase, on both sides"}};
  result.evidence = std::move(evidence);
  result.evidence.insert(result.evidence.end(), {"reference/events.jsonl", "candidate/events.jsonl"});
  return result;
}

SetResult compared(const Context& context, const std::string& what) {
  SetRequest request{"operators", 0, "custom-ops", "candidate", "custom-ops"};
  request.wanted = [mark = "/" + what + " "](const std::string& name) { return name.find(mark) != std::string::npos; };
  request.exact_task = "custom-ops";
  request.exact_what = "operators-float64";
  request.autocast = false;
  return compare_sets(context, request);
}

std::string counted(const Survey& survey, size_t inputs, const SetResult& set) {
  std::string text =
      std::to_string(inputs) + " inputs, " + std::to_string(set.rows.size()) + " results and gradients inside the rule";
  if (set.judged_by_f64) text += ", " + std::to_string(set.judged_by_f64) + " of them by the f64 judge";
  if (survey.raised_alike) text += "; " + std::to_string(survey.raised_alike) + " raise the same on both sides";
  if (survey.weaker) text += "; " + std::to_string(survey.weaker) + " judged without a float64 run (weaker)";
  return text;
}

CheckResult judge(const Context& context, const std::string& what) {
  if (context.need("reference", "custom-ops", "operators").at("names").empty())
    return not_applicable("the job names no custom operators (custom_ops)");
  if (!context.ended("candidate", "custom-ops") && !context.error("candidate", "custom-ops")) {
    if (const std::string last = begun(context); !last.empty())
      return verdict(Verdict::NotJudged, "the candidate's process ended in " + last + "; see candidate/stderr.log",
                     json::object());
  }
  Surveyor surveyor(context, what);
  const Survey survey = surveyor.look();
  const SetResult set = compared(context, what);
  json measured = {{"inputs", surveyor.count()}, {"tensors", set.rows.size()}, {"stopped", set.stopped},
                   {"unmatched", set.unmatched}, {"errors", survey.errors},    {"rows", set.rows}};
  Registration registered;
  if (what == "common") {
    registered = registration(context);
    measured["opcheck"] = registered.table;
  }
  const auto say = [&](Verdict ends, const std::string& why) { return verdict(ends, why, measured, set.evidence); };
  if (!survey.open.empty()) return say(Verdict::NotJudged, survey.open);
  if (!survey.stop.empty()) return say(Verdict::Stop, survey.stop);
  if (!set.unmatched.empty()) return say(Verdict::Stop, "not the same on both sides: " + set.unmatched.front());
  if (!set.stopped.empty()) {
    const std::string& first = set.stopped.front();
    return say(Verdict::Stop, std::to_string(set.stopped.size()) + " of " + std::to_string(set.rows.size()) +
                                  " results and gradients outside the rule, first " +
                                  (set.worst.starts_with(first) ? set.worst : first));
  }
  if (!registered.worse.empty()) return say(Verdict::Stop, registered.worse + "; on the reference it passes");
  if (what == "common" && set.rows.empty())
    return say(Verdict::NotJudged, "no input of custom_ops() gave a result: " + counted(survey, surveyor.count(), set));
  return say(Verdict::Pass, counted(survey, surveyor.count(), set) +
                                (registered.failed.empty() ? "" : "; on both sides: " + registered.failed));
}

}  // namespace

CheckResult common(const Context& context) { return judge(context, "common"); }
CheckResult boundary(const Context& context) { return judge(context, "boundary"); }

}  // namespace tpupilot::pilot::operators
