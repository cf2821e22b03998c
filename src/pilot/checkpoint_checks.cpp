// Gate 1: saving, loading, resuming, crashing.
#include <algorithm>
#include <map>

#include "pilot/comparison.h"
#include "pilot/context.h"
#include "pilot/families.h"
#include "pilot/job_error.h"
#include "pilot/job_form.h"
#include "pilot/plan.h"

namespace tpupilot::pilot::checkpoint {

using nlohmann::json;

namespace {

// Names of the parts ("model", "optimizer", "rng", ...) whose hashes differ.
std::vector<std::string> differing_parts(const json& expected, const json& found) {
  std::vector<std::string> parts;
  for (const auto& [part, hash] : expected.items()) {
    if (!found.contains(part) || found[part] != hash) parts.push_back(part);
  }
  for (const auto& [part, hash] : found.items()) {
    if (!expected.contains(part)) parts.push_back(part);
  }
  return parts;
}

std::string joined(const std::vector<std::string>& words, size_t most = 4) {
  std::string text;
  for (size_t i = 0; i < words.size() && i < most; ++i) text += (i ? ", " : "") + words[i];
  if (words.size() > most) text += " and " + std::to_string(words.size() - most) + " more";
  return text;
}

std::map<int64_t, json> steps_of(const Context& context, const std::string& task) {
  std::map<int64_t, json> steps;
  for (const json& step : context.all("candidate", task, "step")) steps[step.at("step")] = step;
  return steps;
}

// The first step of `other` that is not the straight run's, in words; "" if all are.
std::string first_departure(const std::map<int64_t, json>& straight, const std::map<int64_t, json>& other,
                            const std::string& name) {
  for (const auto& [step, event] : other) {
    const auto same = straight.find(step);
    const std::string where = name + " at step " + std::to_string(step);
    if (same == straight.end()) return where + " has no counterpart in the straight run";
    const json expected = same->second.value("state_sha256", json::object());
    const auto parts = differing_parts(expected, event.value("state_sha256", json::object()));
    if (!parts.empty()) return where + " differs from the straight run in " + joined(parts);
    if (expected.empty()) return where + " has no state hash";
    for (const char* key : {"loss", "batch_sha256"}) {
      if (event.at(key) != same->second.at(key)) return where + ": " + key + " differs from the straight run";
    }
  }
  return "";
}

CheckResult stop_or_pass(const std::string& wrong, const std::string& right, json measured,
                         std::vector<std::string> evidence) {
  CheckResult result;
  result.verdict = wrong.empty() ? Verdict::Pass : Verdict::Stop;
  result.why = wrong.empty() ? right : wrong;
  result.measured = std::move(measured);
  result.rule = {{"difference", "none, bit for bit"}};
  result.evidence = std::move(evidence);
  return result;
}

const std::vector<std::string> kCandidateEvents = {"candidate/events.jsonl"};

// A job whose own checkpoint() or restore() raises on the candidate has shown that it cannot resume there.
std::optional<CheckResult> own_format_raised(const Context& context, const std::vector<std::string>& tasks) {
  if (!job_form(context).own_format) return std::nullopt;
  for (const std::string& task : tasks) {
    const auto error = context.ended("candidate", task) ? std::nullopt : context.error("candidate", task);
    if (!error || (error->value("where", "") != "checkpoint" && error->value("where", "") != "restore")) continue;
    return stop_or_pass("candidate/" + task + " raised " + describe_error(*error), "", {{"error", *error}},
                        kCandidateEvents);
  }
  return std::nullopt;
}

// Parts that the job's own format did not give back in a load task; "" if all came. The generators are left out: the
// device's own has no counterpart on another device.
std::string lost_by_own_format(const Context& context, const std::string& side, const std::string& task,
                               const json& expected) {
  const json found = context.need(side, task, "own_state");
  if (found.at("error").is_string())
    return "the job's restore() raised on the " + side + ": " + found["error"].get<std::string>();
  auto parts = differing_parts(expected, found.at("state_sha256"));
  std::erase(parts, "rng");
  return parts.empty() ? "" : "the job's own format, loaded on the " + side + ", differs in " + joined(parts);
}

}  // namespace

CheckResult round_trip(const Context& context) {
  if (auto raised = own_format_raised(context, {"until", "resumed-mid", "resumed-border", "round-trip"}))
    return *raised;
  const auto saved = context.checkpoint("candidate", "until", "mid");
  const json loaded = context.need("candidate", "round-trip", "state");
  const auto parts = differing_parts(saved.at("state_sha256"), loaded.at("state_sha256"));
  const auto tensors = differing_tensors(context, "candidate/checkpoints/mid", "candidate/checkpoints/mid-again", {});
  std::string wrong;
  if (!parts.empty())
    wrong = "after save and load these parts differ: " + joined(parts);
  else if (!tensors.empty())
    wrong = "saved, loaded and saved again, these tensors differ: " + joined(tensors);
  const json measured = {{"parts", saved.at("state_sha256").size()},
                         {"entries", loaded.value("entries", json::object()).size()},
                         {"differing_parts", parts},
                         {"differing_tensors", tensors}};
  const std::string how = job_form(context).own_format ? ", through the job's own checkpoint() and restore()" : "";
  return stop_or_pass(wrong, "all state comes back bit for bit" + how, measured,
                      {"candidate/events.jsonl", "candidate/checkpoints/mid/state.safetensors",
                       "candidate/checkpoints/mid-again/state.safetensors"});
}

CheckResult resume(const Context& context) {
  const JobForm form = job_form(context);
  if (form.inference)
    return not_applicable("an inference job trains nothing that could be resumed; its weights: ckpt.round-trip");
  if (auto raised = own_format_raised(context, {"until", "resumed-mid", "resumed-border"})) return *raised;
  const ResumeSteps plan = resume_steps(context.settings());
  const auto straight = steps_of(context, "straight");
  json measured = {
      {"steps_per_epoch", plan.epoch}, {"saved_after", {plan.mid, plan.border}}, {"straight_steps", straight.size()}};
  std::string wrong = first_departure(straight, steps_of(context, "until"), "the run until the save");
  if (!wrong.empty()) wrong += "; the candidate does not repeat itself even without a resume";
  for (const std::string name : {"resumed-mid", "resumed-border"}) {
    context.need("candidate", name, "task.end");
    const auto steps = steps_of(context, name);
    const int64_t saved_after = name == "resumed-mid" ? plan.mid : plan.border;
    measured[name] = {{"first_step", steps.empty() ? -1 : steps.begin()->first}, {"steps", steps.size()}};
    if (!wrong.empty()) continue;
    if (steps.size() < 3 || steps.begin()->first != saved_after + 1) {
      wrong = name + " made " + std::to_string(steps.size()) + " steps from step " +
              measured[name]["first_step"].dump() + "; at least 3 from step " + std::to_string(saved_after + 1) +
              " were asked for";
    } else {
      wrong = first_departure(straight, steps, name);
    }
  }
  const std::string how = form.own_format ? " through the job's own restore()" : "";
  return stop_or_pass(wrong,
                      "resumed" + how + " in mid-epoch and at an epoch border, every step has the straight run's state",
                      measured, kCandidateEvents);
}

CheckResult portable(const Context& context) {
  const json saved = context.checkpoint("reference", "base", "known-good");
  context.need("candidate", "portable", "state");
  context.need("reference", "portable-back", "state");
  const json exported = context.need("reference", "torch-file", "state").at("state_sha256");
  const std::string known_good = "reference/checkpoints/known-good", there = "candidate/checkpoints/portable",
                    back = "reference/checkpoints/portable-back";
  // The device's own generator has no counterpart on another device.
  const std::vector<std::string> but = {"rng/device"};
  const auto on_candidate = differing_tensors(context, known_good, there, but);
  const auto on_return = differing_tensors(context, known_good, back, but);

  const json last = context.all("candidate", "base", "step").back().at("state_sha256");
  std::vector<std::string> file_parts;
  size_t parts = 0;
  for (const auto& [part, hash] : last.items()) {
    if (part == "rng" || part == "data") continue;  // a torch.save of the state dicts has neither
    ++parts;
    if (exported.value(part, json()) != hash) file_parts.push_back(part);
  }
  std::string wrong;
  if (!on_candidate.empty())
    wrong = "the reference's checkpoint, loaded on the candidate, differs in " + joined(on_candidate);
  else if (!on_return.empty())
    wrong = "the checkpoint that came back from the candidate differs in " + joined(on_return);
  else if (!file_parts.empty())
    wrong = "the candidate's torch.save file, loaded without the device, differs in " + joined(file_parts);
  const bool own = job_form(context).own_format;
  if (wrong.empty() && own) wrong = lost_by_own_format(context, "candidate", "portable", saved.at("state_sha256"));
  if (wrong.empty() && own) wrong = lost_by_own_format(context, "reference", "torch-file", last);
  json measured = {{"on_candidate", on_candidate},
                   {"back_on_reference", on_return},
                   {"torch_file", file_parts},
                   {"torch_file_parts", parts}};
  CheckResult result = stop_or_pass(wrong,
                                    std::string("there and back bit for bit; the torch.save file ") +
                                        (own ? "and the job's own format load" : "loads") + " without the device" +
                                        (context.settings().text("reference", "evidence").empty()
                                             ? ""
                                             : " (on this machine: the recorded environment is elsewhere)"),
                                    measured,
                                    {known_good + "/state.safetensors", there + "/state.safetensors",
                                     back + "/state.safetensors", "candidate/exports/base.pt"});
  if (result.verdict == Verdict::Pass && !context.settings().text("job", "checkpoint").empty()) {
    result.verdict = Verdict::NotJudged;
    result.why = "job.checkpoint names a production checkpoint, which this release does not load yet";
  }
  return result;
}

CheckResult crash(const Context& context) {
  if (job_form(context).inference) return not_applicable("an inference job saves nothing while it runs");
  if (auto raised = own_format_raised(context, {"until", "resumed-mid", "crash-save", "after-crash"})) return *raised;
  int64_t begun = 0, ended = 0;
  for (const json& event : context.killed("candidate", "crash-save")) {
    if (event.at("event") == "save.begin") begun = event.at("number");
    if (event.at("event") == "save.end") ended = event.at("number");
  }
  json measured = {{"saves_ended", ended}, {"killed_in_save", begun}};
  CheckResult result;
  result.measured = measured;
  if (begun <= ended || ended == 0) {
    result.why = "the kill did not fall between save.begin and save.end; run again";
    return result;
  }
  context.need("candidate", "after-crash", "task.end");
  const auto steps = steps_of(context, "after-crash");
  const int64_t first = resume_steps(context.settings()).mid + 1;
  std::string wrong = broken_checkpoint(context, "candidate/checkpoints/crash");
  if (wrong.empty() && (steps.empty() || steps.begin()->first != first))
    wrong = "the run after the kill did not go on at step " + std::to_string(first);
  if (wrong.empty()) wrong = first_departure(steps_of(context, "straight"), steps, "after the kill, the run");
  measured["steps_after"] = steps.size();
  return stop_or_pass(
      wrong,
      "killed inside save " + std::to_string(begun) + ", the former checkpoint is whole and the run goes on from it",
      measured, {"candidate/events.jsonl", "candidate/checkpoints/crash/state.safetensors"});
}

CheckResult known_good(const Context& context) {
  const json saved = context.checkpoint("reference", "base", "known-good");
  std::string wrong = broken_checkpoint(context, "reference/checkpoints/known-good");
  json measured = {{"step", saved.at("step")}, {"files", saved.at("files")}};
  return stop_or_pass(
      wrong, "kept in the run folder, its hashes hold", measured,
      {"reference/checkpoints/known-good/state.safetensors", "reference/checkpoints/known-good/state.json"});
}

}  // namespace tpupilot::pilot::checkpoint
