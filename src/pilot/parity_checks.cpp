// Gate 1: the same steps on both sides, number for number.
#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "pilot/comparison.h"
#include "pilot/context.h"
#include "pilot/families.h"
#include "pilot/job_error.h"
#include "pilot/job_form.h"

namespace tpupilot::pilot::parity {

using nlohmann::json;

namespace {

const std::vector<std::string> kEvents = {"reference/events.jsonl", "candidate/events.jsonl"};

std::string count(size_t n, const std::string& noun) { return std::to_string(n) + " " + noun + (n == 1 ? "" : "s"); }

std::string number(double value) {
  std::ostringstream out;
  out.precision(3);
  out << value;
  return out.str();
}

CheckResult make(Verdict verdict, std::string why, json measured, json rule,
                 std::vector<std::string> evidence = kEvents) {
  CheckResult result;
  result.verdict = verdict;
  result.why = std::move(why);
  result.measured = std::move(measured);
  result.rule = std::move(rule);
  result.evidence = std::move(evidence);
  return result;
}

// The candidate could not do the steps, but the reference could: that is evidence against, not missing evidence.
std::optional<CheckResult> candidate_raised(const Context& context) {
  if (context.ended("candidate", "base") || !context.ended("reference", "base")) return std::nullopt;
  const auto error = context.error("candidate", "base");
  if (!error) return std::nullopt;
  return make(Verdict::Stop, "the candidate raised " + describe_error(*error), {{"error", *error}},
              {{"raised", "nothing"}});
}

json tolerance_rule(const Context& context) {
  return {{"tolerance", context.manifest().at("thresholds").at("tolerance")},
          {"judge", context.settings().text("parity", "judge")},
          {"judge_factor", context.manifest().at("thresholds").at("judge_factor")}};
}

const char* const kInference = "an inference job (forward instead of loss and optimizer): ";
const char* const kNoOptimizer = "the job has no optimizer: ";

// The parts of a step that this job does not have.
std::optional<CheckResult> without_loss(const Context& context) {
  if (!job_form(context).inference) return std::nullopt;
  return not_applicable(std::string(kInference) + "there is no loss; par.forward judges its outputs");
}

std::optional<CheckResult> without_gradients(const Context& context) {
  const JobForm form = job_form(context);
  if (form.optimizers) return std::nullopt;
  return not_applicable(std::string(form.inference ? kInference : kNoOptimizer) +
                        "gradients are taken as an optimizer is about to use them");
}

std::optional<CheckResult> without_updates(const Context& context) {
  const JobForm form = job_form(context);
  if (form.updates) return std::nullopt;
  return not_applicable(std::string(form.inference ? kInference : kNoOptimizer) +
                        "no step changes a parameter on either side");
}

CheckResult judge_sets(const Context& context, const std::vector<SetRequest>& requests, const std::string& noun) {
  json rows = json::array();
  std::vector<std::string> evidence;
  size_t stopped = 0, unmatched = 0, by_judge = 0;
  bool nonfinite = false;
  std::string first, odd, worst;
  for (const SetRequest& request : requests) {
    SetResult result = compare_sets(context, request);
    rows.insert(rows.end(), result.rows.begin(), result.rows.end());
    evidence.insert(evidence.end(), result.evidence.begin(), result.evidence.end());
    stopped += result.stopped.size();
    unmatched += result.unmatched.size();
    by_judge += result.judged_by_f64;
    nonfinite = nonfinite || result.reference_nonfinite;
    if (odd.empty() && !result.unmatched.empty()) odd = result.unmatched.front();
    if (first.empty() && !result.stopped.empty())
      first = result.stopped.front() + " at step " + std::to_string(request.step) + " (" + result.worst + ")";
    if (worst.empty()) worst = result.worst;
  }
  json measured = {{"tensors", rows.size()},
                   {"stopped", stopped},
                   {"unmatched", unmatched},
                   {"passed_by_judge", by_judge},
                   {"rows", rows}};
  const json rule = tolerance_rule(context);
  if (rows.empty() && unmatched == 0)
    return make(Verdict::NotJudged, "no " + noun + " was recorded", measured, rule, evidence);
  if (unmatched > 0)
    return make(Verdict::Stop, count(unmatched, noun) + " not the same on both sides, first " + odd, measured, rule,
                evidence);
  if (stopped > 0)
    return make(Verdict::Stop, count(stopped, noun) + " outside the rule, first " + first, measured, rule, evidence);
  if (nonfinite)
    return make(Verdict::NotJudged,
                "the reference's own " + noun + " holds NaN or Inf: there is nothing to compare with", measured, rule,
                evidence);
  return make(Verdict::Pass,
              count(rows.size(), noun) + " inside the rule" +
                  (by_judge ? ", " + std::to_string(by_judge) + " of them by the f64 judge" : "") +
                  (worst.empty() ? "" : "; worst: " + worst),
              measured, rule, evidence);
}

bool is_loss(const std::string& name) { return name == "loss"; }
bool is_output(const std::string& name) { return name != "loss"; }

// Loss and batch of one step: NaN is written as null or text.
double value_of(const json& step, const char* key) {
  return step.contains(key) && step[key].is_number() ? step[key].get<double>() : std::nan("");
}

struct StepPair {
  json reference, candidate;
};

std::vector<StepPair> paired_steps(const Context& context, const std::string& reference_task, const std::string& side,
                                   const std::string& task) {
  const auto reference = context.all("reference", reference_task, "step"), candidate = context.all(side, task, "step");
  if (reference.empty() || reference.size() != candidate.size()) {
    throw NotJudgedError("reference/" + reference_task + " made " + count(reference.size(), "step") + ", " + side +
                         "/" + task + " " + std::to_string(candidate.size()));
  }
  std::vector<StepPair> pairs;
  pairs.reserve(reference.size());
  for (size_t i = 0; i < reference.size(); ++i) pairs.push_back({reference[i], candidate[i]});
  return pairs;
}

}  // namespace

CheckResult inputs_equal(const Context& context) {
  if (auto raised = candidate_raised(context)) return *raised;
  const json reference = context.need("reference", "base", "inputs"),
             candidate = context.need("candidate", "base", "inputs");
  json measured = {{"weights", reference.at("weights").size()}};
  std::vector<std::string> wrong;
  for (const char* part : {"weights", "hyper", "rng"}) {
    if (reference.value(part, json()) != candidate.value(part, json())) wrong.push_back(part);
  }
  int64_t batch = -1;
  for (const StepPair& pair : paired_steps(context, "base", "candidate", "base")) {
    if (pair.reference.at("batch_sha256") != pair.candidate.at("batch_sha256")) {
      batch = pair.reference.at("step");
      wrong.push_back("the batch of step " + std::to_string(batch));
      break;
    }
  }
  const auto draws = context.find("candidate", "base", "draws");
  const json unmatched = draws ? draws->value("unmatched", json::array()) : json::array();
  measured["draws"] = draws ? json{{"replayed", draws->value("replayed", 0)},
                                   {"unmatched", unmatched},
                                   {"untracked", draws->value("native_untracked", json::array())}}
                            : json();
  measured["different"] = wrong;
  const json rule = {{"different", "nothing"}, {"unmatched_draws", 0}};
  if (!wrong.empty()) {
    std::string why = "not the same on both sides: " + wrong.front();
    if (batch >= 0) {
      const auto again =
          context.ended("reference", "repeat") ? context.all("reference", "repeat", "step") : std::vector<json>();
      const auto first = context.all("reference", "base", "step");
      const bool impure = !again.empty() && again.front().at("batch_sha256") != first.front().at("batch_sha256");
      why += impure ? "; batch(step) gives another batch each time it is called, also in the reference: make it depend "
                      "on `step` alone"
                    : "";
    }
    return make(Verdict::Stop, why, measured, rule);
  }
  if (!draws) return make(Verdict::NotJudged, "the candidate recorded nothing about random draws", measured, rule);
  if (!unmatched.empty()) {
    return make(Verdict::NotJudged,
                count(unmatched.size(), "random draw") + " of the candidate had no partner in the reference, first " +
                    unmatched[0].value("function", "?"),
                measured, rule);
  }
  return make(Verdict::Pass,
              count(reference.at("weights").size(), "weight") + ", all batches and " +
                  std::to_string(draws->value("replayed", 0)) + " replayed draws are equal",
              measured, rule);
}

CheckResult noise_floor(const Context& context) {
  std::vector<int64_t> different;
  std::string part;
  for (const StepPair& pair : paired_steps(context, "base", "reference", "repeat")) {
    for (const char* key : {"batch_sha256", "loss", "outputs_sha256", "state_sha256"}) {
      if (pair.reference.value(key, json()) == pair.candidate.value(key, json())) continue;
      if (different.empty()) part = key;
      different.push_back(pair.reference.at("step"));
      break;
    }
  }
  const json measured = {{"different_steps", different}}, rule = {{"difference", "none, bit for bit"}};
  if (different.empty())
    return make(Verdict::Pass, "two runs of the reference are equal bit for bit", measured, rule,
                {"reference/events.jsonl"});
  const std::string cause =
      part == "batch_sha256" ? "batch(step) gives another batch each time" : "its " + part + " differs";
  return make(Verdict::NotJudged,
              "the reference does not repeat itself from step " + std::to_string(different.front()) + ": " + cause +
                  "; make the job deterministic under its seed (this release has no wider floor)",
              measured, rule, {"reference/events.jsonl"});
}

CheckResult forward(const Context& context) {
  if (auto raised = candidate_raised(context)) return *raised;
  std::vector<SetRequest> requests;
  for (const json& event : context.all("reference", "base", "tensors")) {
    if (event.at("what") == "forward" && (event.at("step") == 0 || event.value("signature_sample", false))) {
      requests.push_back({"forward", event.at("step"), "base", "candidate", "base", is_output});
    }
  }
  return judge_sets(context, requests, "output");
}

CheckResult loss(const Context& context) {
  if (auto absent = without_loss(context)) return *absent;
  if (auto raised = candidate_raised(context)) return *raised;
  return judge_sets(context, {{"forward", 0, "base", "candidate", "base", is_loss}}, "loss");
}

CheckResult gradients(const Context& context) {
  if (auto absent = without_gradients(context)) return *absent;
  if (auto raised = candidate_raised(context)) return *raised;
  return judge_sets(context, {{"gradients", 0}}, "gradient");
}

CheckResult next_step(const Context& context) {
  if (auto absent = without_updates(context)) return *absent;
  if (auto raised = candidate_raised(context)) return *raised;
  return judge_sets(context, {{"state", 0}}, "state tensor");
}

CheckResult drift(const Context& context) {
  if (job_form(context).inference)
    return not_applicable(std::string(kInference) + "no step leaves anything behind that could drift");
  double sum = 0, norm_sum = 0, largest = 0;
  int64_t at = 0;
  const auto pairs = paired_steps(context, "base", "candidate", "base");
  for (const StepPair& pair : pairs) {
    const double reference = value_of(pair.reference, "loss"), candidate = value_of(pair.candidate, "loss");
    const double error = std::abs(candidate - reference) / std::max(std::abs(reference), 1e-12);
    const double norm = value_of(pair.reference, "grad_norm");
    if (error > largest) largest = error, at = pair.reference.at("step");
    sum += error;
    norm_sum += std::abs(value_of(pair.candidate, "grad_norm") - norm) / std::max(std::abs(norm), 1e-12);
  }
  const double mean = sum / static_cast<double>(pairs.size()), limit = context.settings().number("parity", "max_drift");
  json measured = {{"steps", pairs.size()},
                   {"mean_relative_loss_error", mean},
                   {"largest", largest},
                   {"largest_at_step", at},
                   {"mean_relative_grad_norm_error", norm_sum / static_cast<double>(pairs.size())}};
  // Every tensor after the last step, by the rule of one step. Reported, not ruled: training amplifies honest
  // differences, by how much is the job's own affair.
  const SetResult last = compare_sets(context, {"state", pairs.back().reference.at("step")});
  measured["rows"] = last.rows;
  measured["tensors_after_last_step"] = {{"compared", last.rows.size()}, {"outside_the_rule", last.stopped}};
  const json rule = {{"mean_relative_loss_error", limit}};
  if (!std::isfinite(mean))
    return make(Verdict::NotJudged, "a loss is NaN or Inf: there is no relative error", measured, rule);
  const std::string figures = "mean relative loss error " + number(mean) + " over " + count(pairs.size(), "step") +
                              "; after the last one " + std::to_string(last.rows.size() - last.stopped.size()) +
                              " of " + count(last.rows.size(), "state tensor") + " inside the rule of one step";
  return make(mean <= limit ? Verdict::Pass : Verdict::Stop,
              figures + (mean <= limit ? "" : ", more than " + number(limit)), measured, rule);
}

CheckResult updates(const Context& context) {
  if (auto absent = without_updates(context)) return *absent;
  size_t reference = 0, candidate = 0;
  std::vector<int64_t> different;
  const auto pairs = paired_steps(context, "base", "candidate", "base");
  for (const StepPair& pair : pairs) {
    const bool left = pair.reference.at("updated"), right = pair.candidate.at("updated");
    reference += left;
    candidate += right;
    if (left != right) different.push_back(pair.reference.at("step"));
  }
  const json measured = {
      {"asked", pairs.size()}, {"reference", reference}, {"candidate", candidate}, {"different_steps", different}};
  const json rule = {{"different_steps", "none"}};
  if (!different.empty())
    return make(Verdict::Stop, "the update of step " + std::to_string(different.front()) + " was made on one side only",
                measured, rule);
  if (candidate < pairs.size()) {
    return make(Verdict::NotJudged,
                count(pairs.size() - candidate, "update") + " were skipped on both sides, and the job does not say why",
                measured, rule);
  }
  return make(Verdict::Pass, count(candidate, "update") + " asked for, as many made, on both sides", measured, rule);
}

CheckResult nonfinite(const Context& context) {
  size_t total = 0;
  std::vector<int64_t> different;
  for (const StepPair& pair : paired_steps(context, "base", "candidate", "base")) {
    const int64_t left = pair.reference.value("nonfinite", int64_t{0}),
                  right = pair.candidate.value("nonfinite", int64_t{0});
    total += static_cast<size_t>(left);
    if (left != right || std::isnan(value_of(pair.reference, "loss")) != std::isnan(value_of(pair.candidate, "loss")))
      different.push_back(pair.reference.at("step"));
  }
  const json measured = {{"reference_nonfinite", total}, {"different_steps", different}},
             rule = {{"different_steps", "none"}};
  if (!different.empty())
    return make(Verdict::Stop, "NaN or Inf at other places from step " + std::to_string(different.front()), measured,
                rule);
  return make(Verdict::Pass,
              total == 0 ? "no NaN and no Inf on either side"
                         : count(total, "NaN or Inf value") + ", at the same steps on both sides",
              measured, rule);
}

CheckResult dtype(const Context& context) {
  if (auto raised = candidate_raised(context)) return *raised;
  std::vector<std::string> unmatched;
  std::vector<std::string> evidence;
  std::set<std::string> types;
  size_t tensors = 0;
  const bool optimizers = job_form(context).optimizers;
  for (const std::string what : {"forward", "gradients", "state"}) {
    if (what == "gradients" && !optimizers) continue;
    const SetResult set = compare_sets(context, {what, 0});
    unmatched.insert(unmatched.end(), set.unmatched.begin(), set.unmatched.end());
    evidence.insert(evidence.end(), set.evidence.begin(), set.evidence.end());
    tensors += set.rows.size();
    for (const json& row : set.rows) {
      const std::string type = row.at("dtype");  // of the parameters: without gradients, of the floating point state
      if (row.at("kind") == "gradient" || (what == "state" && !optimizers && type.find("float") != std::string::npos))
        types.insert(type);
    }
  }
  const json measured = {{"tensors", tensors}, {"parameters", types}, {"different", unmatched}},
             rule = {{"different", "none"}};
  if (!unmatched.empty())
    return make(Verdict::Stop,
                count(unmatched.size(), "tensor") + " with another dtype or shape, or on one side only, first " +
                    unmatched.front(),
                measured, rule, evidence);
  return make(Verdict::Pass, count(tensors, "tensor") + " with the same dtype and shape on both sides", measured, rule,
              evidence);
}

CheckResult placement(const Context& context) {
  const json ops = context.need("candidate", "placement", "ops");
  const std::string device = context.settings().text("candidate", "device");
  const std::string kind = device.substr(0, device.find(':'));
  json elsewhere = json::object();
  int64_t there = 0;
  for (const json& op : ops.at("ops")) {
    const std::string where = op.at("device");
    if (where.substr(0, where.find(':')) == kind)
      there += op.at("count").get<int64_t>();
    else
      elsewhere[op.at("op").get<std::string>()] = where;
  }
  const json on_cpu = ops.value("cpu_ops_on_device_data", json::array());
  const auto counters = context.find("candidate", "base", "counters");
  const json counted = counters ? counters->value("counters", json()) : json();
  const json fallbacks = counted.is_object() && counted.contains("fallbacks") ? counted["fallbacks"] : json();
  const json measured = {
      {"ops_on_device", there}, {"elsewhere", elsewhere}, {"cpu_ops_on_device_data", on_cpu}, {"fallbacks", fallbacks}};
  const json rule = {{"ops_on_device", "> 0"}, {"fallbacks", 0}, {"cpu_ops_on_device_data", 0}};
  if (kind == "cpu")
    return make(Verdict::NotApplicable,
                "the candidate's device is the CPU itself: nothing is said about another device", measured, rule);
  if (there == 0) return make(Verdict::Stop, "not one op ran on `" + device + "`", measured, rule);
  if (!on_cpu.empty())
    return make(
        Verdict::Stop,
        count(on_cpu.size(), "op") + " ran on the CPU on data that came from the device, first " + on_cpu[0].dump(),
        measured, rule);
  if (fallbacks.is_null()) return make(Verdict::NotJudged, "the backend does not count its fallbacks", measured, rule);
  if (fallbacks != 0) return make(Verdict::Stop, fallbacks.dump() + " ops fell back to the CPU", measured, rule);
  return make(Verdict::Pass, std::to_string(there) + " ops of one step ran on `" + device + "`, no fallback", measured,
              rule);
}

CheckResult self_test(const Context& context) {
  json measured = try_the_judge(context);
  const json rule = {{"known_good", "passes"}, {"faults", "each stops"}};
  const std::string fault = context.need("candidate", "fault", "inputs").value("fault", "drop-gradient");
  const std::string where = job_form(context).optimizers ? "gradients" : "forward";
  const SetResult worker = compare_sets(context, {where, 0, "base", "candidate", "fault"});
  measured["worker_fault"] = {
      {"fault", fault}, {"caught", !worker.stopped.empty() || !worker.unmatched.empty()}, {"tensors", worker.stopped}};
  if (!measured.at("known_good"))
    return make(Verdict::Stop, "the judge stops the reference against itself: it cannot be trusted on this job",
                measured, rule);
  for (const json& fault : measured.at("faults")) {
    if (!fault.at("caught"))
      return make(Verdict::Stop,
                  "the judge does not see the fault `" + fault.at("fault").get<std::string>() + "` in " +
                      fault.at("tensor").get<std::string>(),
                  measured, rule);
  }
  if (!measured["worker_fault"]["caught"])
    return make(Verdict::Stop, "a worker with the fault `" + fault + "` was not caught", measured, rule);
  return make(Verdict::Pass,
              "a known-good pair passes, " + count(measured.at("faults").size(), "injected fault") +
                  " and a worker with the fault " + fault + " stop; " +
                  measured.value("smallest_text", std::string("no fault was small enough to pass")),
              measured, rule, worker.evidence);
}

}  // namespace tpupilot::pilot::parity
