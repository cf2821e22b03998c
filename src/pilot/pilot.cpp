#include "pilot/pilot.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <functional>

#include "evidence/digest.h"
#include "evidence/write_file.h"
#include "numerics/error.h"
#include "pilot/context.h"
#include "pilot/divergence.h"
#include "pilot/job_error.h"
#include "pilot/packages.h"
#include "pilot/plan.h"
#include "pilot/recorded.h"
#include "pilot/rerun.h"
#include "pilot/revision.h"
#include "pilot/run_state.h"
#include "pilot/scheduler.h"
#include "pilot/sheet.h"
#include "pilot/thresholds.h"
#include "pilot/worker_launcher.h"

namespace tpupilot::pilot {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string utc_now(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, format, &parts)};
}

void check_fault(const std::string& fault) {
  const auto& kinds = fault_kinds();
  if (fault.empty() || std::find(kinds.begin(), kinds.end(), fault) != kinds.end()) return;
  std::string all;
  for (std::string_view kind : kinds) all += (all.empty() ? "" : ", ") + std::string(kind);
  throw Error("[--inject] no fault `" + fault + "`; known: " + all + ".");
}

// Keys that cannot be honoured are refused, never ignored.
void refuse_contradictions(const Settings& settings) {
  const std::string device = settings.text("candidate", "device");
  if (settings.text("candidate", "numerics") == "tpu" && !device.starts_with("tpu")) {
    throw Error("[candidate] numerics = \"tpu\" rehearses a TPU's precision on the device tpu; candidate.device is \"" +
                device + "\".");
  }
}

// The manifest before anything ran. config_sha256 is of all that decides what a run does: the same command finds the
// same run.
json draft_manifest(const Job& job, const RunOptions& options) {
  const Settings& settings = job.settings;
  const json thresholds = thresholds_of(settings);
  const json interpreters = {{"reference", interpreter(settings, "reference")},
                             {"candidate", interpreter(settings, "candidate")}};
  const json job_facts = {
      {"name", job.name},
      {"file", job.file.string()},
      {"sha256", evidence::sha256_of_file(job.file)},
      {"pilot_file", job.pilot_file.string()},
      {"revision",
       settings.text("job", "revision") == "auto" ? vcs_revision(job.folder) : json(settings.text("job", "revision"))}};
  const std::string parent_folder = options.parent.empty() ? "" : fs::absolute(options.parent).string();
  const json config = {{"settings", settings.json()},       {"job", job_facts["file"]},
                       {"job_sha256", job_facts["sha256"]}, {"interpreters", interpreters},
                       {"inject", options.inject},          {"parent", parent_folder},
                       {"record", options.record},          {"worker", evidence::sha256_of(options.worker_source)}};
  return {{"schema", 1},
          {"tool", options.tool_version},
          {"job", job_facts},
          {"settings", settings.json()},
          {"interpreters", interpreters},
          {"thresholds", thresholds},
          {"thresholds_sha256", evidence::sha256_of(thresholds)},
          {"parent", parent_folder},
          {"inject", options.inject},
          {"command", options.command},
          {"created", utc_now("%Y-%m-%dT%H:%M:%SZ")},
          {"config_sha256", evidence::sha256_of(config)},
          {"finished", false},
          {"comparable",
           {{"job_sha256", job_facts["sha256"]},
            {"reference.environment_sha256", nullptr},
            {"candidate.environment_sha256", nullptr},
            {"candidate.plugin_sha256", nullptr}}},
          {"tasks", json::object()},
          {"files", json::object()}};
}

fs::path run_folder(const Job& job, const RunOptions& options, const json& draft) {
  if (!options.out.empty()) return fs::absolute(options.out);
  const fs::path runs = fs::absolute("runs") / job.name;
  if (!options.fresh) {
    if (const fs::path unfinished = RunState::unfinished(runs, draft["config_sha256"]); !unfinished.empty())
      return unfinished;
  }
  const std::string name = utc_now("%Y%m%dT%H%M%SZ") + "-" + draft["config_sha256"].get<std::string>().substr(0, 8);
  fs::path folder = runs / name;
  for (int i = 2; fs::exists(folder); ++i) folder = runs / (name + "-" + std::to_string(i));
  return folder;
}

// A verdict whatever the judge meets: evidence that is missing or damaged is not judged, and never a pass.
CheckResult judged(const Check& check, const Context& context) {
  CheckResult result;
  try {
    return check.judge(context);
  } catch (const numerics::Error& error) {
    result.why = error.what();
  } catch (const NotJudgedError& error) {
    result.why = error.what();
  } catch (const json::exception& error) {
    result.why = std::string("the evidence lacks a field: ") + error.what();
  }
  return result;
}

class Run {
 public:
  Run(const RunOptions& options, Progress& progress) : options_(options), progress_(progress) {}

  RunOutcome run() {
    prepare();
    if (options_.dry_run) return {plan_document(), folder_};
    RunState state(folder_, draft_, options_.worker_source);
    if (state.taken_up()) progress_.note("going on with the unfinished run " + folder_.string());
    adopt_recorded(job_.settings, state);
    const Context context(job_.settings, state);
    int last = -1;
    for (int64_t gate : asked_) {
      last = static_cast<int>(gate);
      run_gate(last, state, context);
      const Verdict verdict = gate_verdict(last, context);
      if (verdict != Verdict::Pass && verdict != Verdict::NotApplicable) break;
    }
    if (last >= 1) judge(Gate::Inventory, state, context);
    judge(Gate::Decision, state, context);
    return finish(state, context, last);
  }

  RunOutcome record() {
    prepare();
    RunState state(folder_, draft_, options_.worker_source);
    if (state.taken_up()) progress_.note("going on with the unfinished recording " + folder_.string());
    run_tasks(0, plan_record(plan_input()), state);
    state.set("finished", true);
    return {{{"tasks", state.done()}}, folder_};
  }

  // The same plan as record(), for a worker that runs it by itself. "@out" stands for the folder it is given.
  std::string standalone_recorder() {
    prepare();
    json requests = json::array();
    for (const Process& process : plan_record({job_.settings, "@out", ""}))
      requests.push_back(request_of(process, job_, "@out", kReplayReference));
    const json recording = {{"manifest",
                             {{"schema", 1},
                              {"tool", draft_["tool"]},
                              {"job", draft_["job"]},
                              {"settings", draft_["settings"]},
                              {"config_sha256", draft_["config_sha256"]}}},
                            {"requests", requests}};
    const std::string empty = "\nRECORDING = None";
    std::string text = options_.worker_source;
    const size_t at = text.find(empty);
    if (at == std::string::npos) throw Error("[worker] its source has no place for a plan.", Exit::Internal);
    return text.replace(at, empty.size(), "\nRECORDING = json.loads(" + json(recording.dump()).dump() + ")");
  }

  json doctor() {
    job_ = options_.job.empty() ? Job{} : find_job(options_.job, options_.assignments);
    if (options_.job.empty()) {
      for (const std::string& assignment : options_.assignments) job_.settings.set(assignment);
    }
    folder_ =
        fs::temp_directory_path() / ("tpupilot-doctor-" + evidence::sha256_of(json(std::time(nullptr))).substr(0, 12));
    struct Remove {
      fs::path folder;
      ~Remove() {
        std::error_code ignored;
        fs::remove_all(folder, ignored);
      }
    } remove{folder_};
    draft_ = draft_manifest(job_, options_);
    RunState state(folder_, draft_, options_.worker_source);
    if (job_.file.empty()) {  // a worker wants a job, even one that it does not run
      state.write("job.py",
                  "def model(): ...\ndef batch(step): ...\ndef loss(model, batch): ...\ndef optimizer(model): ...\n");
      job_.file = folder_ / "job.py";
    }
    const Context context(job_.settings, state);
    run_gate(0, state, context);
    return doctor_document(state, context);
  }

 private:
  void prepare() {
    check_fault(options_.inject);
    job_ = find_job(options_.job, options_.assignments);
    refuse_contradictions(job_.settings);
    if (options_.gate) {
      std::string gates;
      for (int gate = 0; gate <= *options_.gate; ++gate) gates += (gate ? "," : "") + std::to_string(gate);
      job_.settings.set("pilot.gates=[" + gates + "]");
    }
    asked_ = job_.settings.integers("pilot", "gates");
    std::sort(asked_.begin(), asked_.end());
    asked_.erase(std::unique(asked_.begin(), asked_.end()), asked_.end());
    if (asked_.empty()) throw Error("[pilot] `gates` is empty: ask for at least gate 0.");
    parent_ = read_parent(options_.parent);
    draft_ = draft_manifest(job_, options_);
    refuse_bad_rerun(parent_, draft_);
    draft_["parent_manifest"] = parent_.manifest.is_null()
                                    ? json()
                                    : json{{"settings", parent_.manifest.at("settings")},
                                           {"comparable", parent_.manifest.value("comparable", json::object())},
                                           {"locks", parent_.locks}};
    folder_ = run_folder(job_, options_, draft_);
  }

  PlanInput plan_input() const { return {job_.settings, folder_, options_.inject}; }

  json plan_document() const {
    json plan = json::array();
    for (int64_t gate : asked_) {
      for (const Process& process : plan_gate(static_cast<int>(gate), plan_input())) {
        json tasks = json::array();
        for (const Task& task : process.tasks) tasks.push_back(task.name);
        plan.push_back({{"gate", gate}, {"side", process.side}, {"tasks", tasks}, {"after", process.after}});
      }
    }
    return {{"folder", folder_.string()}, {"plan", plan}};
  }

  void run_gate(int gate, RunState& state, const Context& context) {
    run_tasks(gate, plan_gate(gate, plan_input()), state);
    if (gate == 0) record_environments(state, context);
    judge(static_cast<Gate>(gate), state, context);
    if (gate == 1) locate(state, context);
  }

  // After a stop of a parity check: where does it begin?
  void locate(RunState& state, const Context& context) {
    if (needs_trace(context)) run_tasks(1, plan_trace(plan_input()), state);
    const Check& check = find_check("par.first-divergence");
    const CheckResult& result = state.results[std::string(check.id)] = judged(check, context);
    divergence_ = write_isolate(job_, state, context);
    progress_.check_ends(check, result);
  }

  void run_tasks(int gate, const std::vector<Process>& plan, RunState& state) {
    std::set<std::string> done = state.done();
    size_t tasks = 0;
    for (const Process& process : remaining(plan, done)) tasks += process.tasks.size();
    progress_.gate_begins(gate, tasks);
    if (tasks == 0) return;
    WorkerLauncher launcher(job_, state);
    const ScheduleOptions schedule{job_.settings.number("pilot", "step_timeout"), options_.interrupted};
    for (const Failure& failure : run_processes(plan, done, launcher, schedule, progress_))
      refuse_failure(failure, state);
  }

  // A job that is broken in its old environment, or does not fit the interface, is the user's to put right. What the
  // candidate could not do is for the checks to judge.
  void refuse_failure(const Failure& failure, const RunState& state) {
    const std::string who = failure.side + "/" + failure.task + " ";
    const std::string logs = "\nIts log is " + (state.folder() / failure.side / "stderr.log").string() + ".";
    if (failure.exit_code == kCannotWrite) refuse_full_disk(failure, state);
    if (failure.error && (is_of_reference(failure) || failure.exit_code == 2)) {
      throw Error("[job] " + who + "raised " + trimmed_traceback(*failure.error));
    }
    if (is_of_reference(failure) || failure.task == "environment") {
      const bool broken = failure.exit_code != 0;
      throw Error("[worker] " + who + failure.why + "." + logs +
                      (broken ? "" : "\nFinished tasks are kept: the same command goes on."),
                  broken ? Exit::Usage : Exit::NotJudged);
    }
    if (!failure.error) unfinished_ = true;
  }

  // Where the worker could not even say so, it is the file of its events that had no room.
  [[noreturn]] static void refuse_full_disk(const Failure& failure, const RunState& state) {
    if (!failure.error) evidence::cannot_write(state.folder() / failure.side / "events.jsonl", ENOSPC);
    throw Error("[worker] " + failure.side + "/" + failure.task + ": " + failure.error->value("message", "") +
                " Finished tasks are kept: the same command goes on and repeats none of them.");
  }

  void record_environments(RunState& state, const Context& context) {
    json comparable = state.manifest().at("comparable");
    for (const std::string side : {"reference", "candidate"}) {
      const json environment = context.need(side, "environment", "environment");
      const json& lock = environment.at("packages");
      state.write(side + "/lock.json", lock.dump(1) + "\n");
      state.add_file(side + "/lock.json");
      comparable[side + ".environment_sha256"] =
          evidence::sha256_of(json{environment.value("python", json()), context.lock_hash(side)});
    }
    const json candidate = context.need("candidate", "environment", "environment");
    const json backend = candidate.value("device", json::object()).value("backend", json());
    comparable["candidate.plugin_sha256"] = backend.is_object() ? backend.value("plugin_sha256", json()) : json();
    state.set("comparable", comparable);
    refuse_bad_rerun(parent_, state.manifest(), package_changes_since(context));
  }

  void judge(Gate gate, RunState& state, const Context& context) {
    for (const Check& check : registry()) {
      if (check.gate != gate || !check.judge || check.id == "par.first-divergence") continue;
      const CheckResult& result = state.results[std::string(check.id)] = judged(check, context);
      progress_.check_ends(check, result);
    }
  }

  static bool needs_trace(const Context& context) {
    for (const char* id : {"par.forward", "par.loss", "par.gradients", "par.next-step"}) {
      const auto judged = context.results().find(id);
      if (judged != context.results().end() && judged->second.verdict == Verdict::Stop) return true;
    }
    return false;
  }

  RunOutcome finish(RunState& state, const Context& context, int last) {
    const json sheet = build_sheet({context, asked_, last, divergence_});
    state.write("sheet.json", sheet.dump(2) + "\n");
    if (options_.page) state.write("report.html", options_.page(sheet));
    state.set("finished", !unfinished_);
    if (unfinished_) progress_.note("a worker was killed or hung: the same command runs what is missing.");
    return {sheet, folder_};
  }

  json doctor_document(const RunState& state, const Context& context) const {
    json checks = json::array(), environments, summary;
    size_t findings = 0;
    for (const Check& check : registry()) {
      const auto judged = state.results.find(std::string(check.id));
      if (judged == state.results.end()) continue;
      const CheckResult& result = judged->second;
      findings += check.must && (result.verdict == Verdict::Stop || result.verdict == Verdict::NotJudged);
      checks.push_back({{"id", check.id},
                        {"verdict", verdict_name(result.verdict)},
                        {"why", result.why},
                        {"measured", result.measured}});
    }
    for (const std::string side : {"reference", "candidate"}) {
      const json environment = context.need(side, "environment", "environment");
      environments[side] = environment;
      const json torch = environment.value("torch", json::object());
      summary[side] = environment.value("executable", "?") + ", Python " + environment.value("python", "?") +
                      ", torch " + torch.value("version", "?") + ", device " + job_.settings.text(side, "device");
    }
    return {{"environments", environments}, {"checks", checks}, {"summary", summary}, {"findings", findings}};
  }

  const RunOptions& options_;
  Progress& progress_;
  Job job_;
  json draft_;
  fs::path folder_;
  Parent parent_;
  std::vector<int64_t> asked_;
  std::string divergence_;
  bool unfinished_ = false;
};

}  // namespace

void write_file(const fs::path& file, const std::string& text) { evidence::write_file(file, text); }

RunOutcome run(const RunOptions& options, Progress& progress) { return Run(options, progress).run(); }

RunOutcome record(const RunOptions& options, Progress& progress) { return Run(options, progress).record(); }

std::string standalone_recorder(const RunOptions& options) {
  Progress silent;
  return Run(options, silent).standalone_recorder();
}

json doctor(const RunOptions& options, Progress& progress) { return Run(options, progress).doctor(); }

}  // namespace tpupilot::pilot
