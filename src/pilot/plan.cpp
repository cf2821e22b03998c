#include "pilot/plan.h"

#include <algorithm>

namespace tpupilot::pilot {

using nlohmann::json;

std::string Process::name() const { return side + "/" + tasks.front().name; }

const std::vector<std::string_view>& fault_kinds() {
  static const std::vector<std::string_view> kinds = {
      "drop-gradient", "scale-weight", "swap-labels",  "lose-optimizer-state", "lose-rng-state",
      "skip-update",   "bfloat16",     "nan-gradient", "stale-data",           "device-tag"};
  return kinds;
}

ResumeSteps resume_steps(const Settings& settings) {
  const int64_t asked = settings.integer("job", "steps_per_epoch");
  const int64_t epoch = asked > 0 ? asked : 8;
  return {epoch, epoch + epoch / 2 - 1 + (epoch == 1 ? 1 : 0), 2 * epoch - 1, 2 * epoch + 3};
}

namespace {

json fault_of(const std::string& kind) {
  return {{"kind", kind}, {"parameter", "auto"}, {"factor", 1.01}, {"step", 0}};
}

class Planner {
 public:
  explicit Planner(const PlanInput& input) : in_(input), resume_(resume_steps(input.settings)) {}

  std::vector<Process> environment() const {
    return {{"reference", {{"environment", {{"task", "environment"}}}}, {}},
            {"candidate", {{"environment", {{"task", "environment"}}}}, {}}};
  }

  std::vector<Process> one_worker() const {
    return {reference(), until(), candidate(), judge(), resumed(), back(), after_crash()};
  }

  std::vector<Process> record() const {
    return {environment().front(), reference(), judge(), {"reference", {traced("reference")}, {"reference/base"}}};
  }

  std::vector<Process> trace() const {
    return {{"reference", {traced("reference")}, {}}, {"candidate", {traced("candidate")}, {}}};
  }

 private:
  int64_t steps() const { return in_.settings.integer("job", "steps"); }

  std::string path(const std::string& side, const std::string& name) const {
    return (in_.folder / side / name).string();
  }
  std::string checkpoint(const std::string& side, const std::string& name) const {
    return path(side, "checkpoints/" + name);
  }

  static json replay() { return {{"mode", "replay"}, {"file", kReplayReference}}; }

  // A run task; the injected fault goes to the candidate only.
  Task run(const std::string& side, const std::string& name, json request) const {
    request["task"] = "run";
    if (side == "candidate" && !in_.inject.empty() && !request.contains("fault"))
      request["fault"] = fault_of(in_.inject);
    return {name, request};
  }

  Task traced(const std::string& side) const {
    return run(side, "trace", {{"steps", 1}, {"record_steps", {0}}, {"record_modules", true}, {"draws", replay()}});
  }

  // The run that everything of par.* compares: `steps` steps, the first and the last recorded whole.
  json recorded(const json& draws) const {
    return {{"steps", steps()},
            {"record_steps", {0, steps() - 1}},
            {"record_signatures", true},
            {"hash_state", "all"},
            {"draws", draws}};
  }

  Process reference() const {
    json base = recorded(json{{"mode", "record"}});
    base["save"] = {{{"after_step", -1}, {"path", checkpoint("reference", "initial")}},
                    {{"after_step", steps() - 1}, {"path", checkpoint("reference", "known-good")}}};
    return {"reference", {run("reference", "base", base)}, {}};
  }

  // First in its process: an operator that the device lacks is named here, before a run meets it.
  static Task operators(bool float64) { return {"custom-ops", {{"task", "custom-ops"}, {"float64", float64}}}; }

  // A process of its own: a repeat in the same process would prove less, and the draws that float64 replays are known
  // when base has ended.
  Process judge() const {
    json request = recorded(replay());
    request["dtype"] = "float64";
    request.erase("hash_state");
    return {"reference",
            {operators(true), run("reference", "repeat", recorded(json{{"mode", "record"}})),
             run("reference", "float64", request)},
            {"reference/base"}};
  }

  // The first step with f32 products in so many bf16 passes.
  Task at_passes(int passes) const {
    return run("candidate", "tpu-precision-" + std::to_string(passes),
               {{"steps", 1}, {"record_steps", {0}}, {"draws", replay()}, {"passes", passes}});
  }

  Process candidate() const {
    json base = recorded(replay());
    base["export_torch"] = path("candidate", "exports/base.pt");
    json fault = {{"steps", 1}, {"record_steps", {0}}, {"draws", replay()}, {"fault", fault_of("drop-gradient")}};
    fault["fault"]["without_optimizer"] = "scale-weight";
    fault["fault"]["factor"] = 1.5;  // to be seen in every dtype
    const json placement = {{"steps", 2}, {"trace_ops", {1}}, {"draws", replay()}};
    const json portable = {{"task", "load"},
                           {"checkpoint", checkpoint("reference", "known-good")},
                           {"format", "pilot"},
                           {"save_to", checkpoint("candidate", "portable")}};
    return {"candidate",
            {operators(false),
             run("candidate", "base", base),
             run("candidate", "fault", fault),
             run("candidate", "placement", placement),
             at_passes(1),
             at_passes(3),
             at_passes(6),
             {"portable", portable},
             run("candidate", "straight", {{"steps", resume_.end}, {"hash_state", "all"}})},
            {"reference/base"}};
  }

  Process until() const {
    json save = json::array({{{"after_step", resume_.mid}, {"path", checkpoint("candidate", "mid")}}});
    if (resume_.border != resume_.mid) {
      save.push_back({{"after_step", resume_.border}, {"path", checkpoint("candidate", "border")}});
    }
    const json request = {{"steps", std::max(resume_.border, resume_.mid) + 1}, {"hash_state", "all"}, {"save", save}};
    return {"candidate", {run("candidate", "until", request)}, {}};
  }

  Task resumed_from(const std::string& name, const std::string& saved, int64_t saved_after) const {
    return run("candidate", name,
               {{"steps", std::min(saved_after + 4, resume_.end)},
                {"hash_state", "all"},
                {"resume_from", checkpoint("candidate", saved)}});
  }

  // Other processes than the one that saved. The last task saves until it is killed inside a save.
  Process resumed() const {
    const std::string border = resume_.border == resume_.mid ? "mid" : "border";
    const json round_trip = {{"task", "load"},
                             {"checkpoint", checkpoint("candidate", "mid")},
                             {"save_to", checkpoint("candidate", "mid-again")}};
    const json crash = {{"task", "crash-save"},
                        {"checkpoint", checkpoint("candidate", "crash")},
                        {"resume_from", checkpoint("candidate", "mid")}};
    return {"candidate",
            {resumed_from("resumed-mid", "mid", resume_.mid),
             resumed_from("resumed-border", border, resume_.border),
             {"round-trip", round_trip},
             {"crash-save", crash}},
            {"candidate/until"},
            true};
  }

  Process back() const {
    const json load = {{"task", "load"},
                       {"checkpoint", checkpoint("candidate", "portable")},
                       {"format", "pilot"},
                       {"save_to", checkpoint("reference", "portable-back")}};
    const json torch_file = {
        {"task", "load"}, {"checkpoint", ""}, {"torch_file", path("candidate", "exports/base.pt")}};
    return {"reference", {{"portable-back", load}, {"torch-file", torch_file}}, {"candidate/portable"}};
  }

  Process after_crash() const {
    return {"candidate", {resumed_from("after-crash", "crash", resume_.mid)}, {"candidate/crash-save"}};
  }

  const PlanInput& in_;
  ResumeSteps resume_;
};

}  // namespace

std::vector<Process> plan_gate(int gate, const PlanInput& input) {
  if (gate == 0) return Planner(input).environment();
  if (gate == 1) return Planner(input).one_worker();
  return {};
}

std::vector<Process> plan_record(const PlanInput& input) { return Planner(input).record(); }

const std::set<std::string>& tasks_after_the_candidate() {
  static const std::set<std::string> tasks = {"portable-back", "torch-file"};
  return tasks;
}

std::vector<Process> plan_trace(const PlanInput& input) { return Planner(input).trace(); }

}  // namespace tpupilot::pilot
