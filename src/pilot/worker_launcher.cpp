#include "pilot/worker_launcher.h"

#include <cstdlib>

#include "evidence/worker_process.h"
#include "pilot/errors.h"
#include "pilot/packages.h"

namespace tpupilot::pilot {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

class Worker : public RunningWorker {
 public:
  explicit Worker(std::unique_ptr<evidence::WorkerProcess> process) : process_(std::move(process)) {}
  std::vector<json> new_events() override { return process_->new_events(); }
  std::optional<Ended> ended() override { return process_->ended(); }
  void pause() override { process_->pause(); }
  void go_on() override { process_->go_on(); }
  void kill() override { process_->kill(); }

 private:
  std::unique_ptr<evidence::WorkerProcess> process_;
};

// The file of draws that reference/base recorded; "" if it drew nothing.
std::string recorded_draws(const RunState& state) {
  std::string file;
  for (const json& event : state.events("reference")) {
    if (event["event"] == "draws" && event["task"] == "base" && event.contains("file") && event["file"].is_string())
      file = event["file"];
  }
  return file.empty() ? "" : (state.folder() / "reference" / file).string();
}

// Where the reference is recorded evidence, its environment is elsewhere: what is still to be loaded is loaded on this
// machine's CPU.
std::string device_of(const Settings& settings, const std::string& side) {
  const bool elsewhere = side == "reference" && !settings.text("reference", "evidence").empty();
  return elsewhere ? "cpu" : settings.text(side, "device");
}

}  // namespace

std::string interpreter(const Settings& settings, const std::string& side) {
  if (const std::string named = settings.text(side, "python"); !named.empty()) return named;
  const char* from_environment = std::getenv("TPUPILOT_PYTHON");
  if (from_environment && *from_environment) return from_environment;
  std::error_code failed;  // installed by pip, the program lies beside its environment's interpreter
  const fs::path beside = fs::read_symlink("/proc/self/exe", failed).parent_path() / "python3";
  return !failed && fs::exists(beside) ? beside.string() : "python3";
}

json request_of(const Process& process, const Job& job, const fs::path& folder, const std::string& draws) {
  const Settings& settings = job.settings;
  json tasks = json::array();
  for (const Task& task : process.tasks) {
    json request = task.request;
    request["name"] = task.name;
    if (request.contains("draws") && request["draws"].value("file", "") == kReplayReference)
      request["draws"]["file"] = draws;
    tasks.push_back(request);
  }
  return {{"protocol", 1},
          {"side", process.side},
          {"out", (folder / process.side).string()},
          {"job", job.file.string()},
          {"device", device_of(settings, process.side)},
          {"seed", settings.integer("job", "seed")},
          {"steps_per_epoch",
           settings.integer("job", "steps_per_epoch") > 0 ? settings.integer("job", "steps_per_epoch") : 8},
          {"autocast", settings.text("reference", "autocast")},
          {"numerics", process.side == "candidate" ? settings.text("candidate", "numerics") : "exact"},
          {"threads", 0},
          {"tasks", tasks}};
}

std::unique_ptr<RunningWorker> WorkerLauncher::launch(const Process& process) {
  const fs::path side = state_.folder() / process.side;
  std::string request = process.side + "/requests/" + process.tasks.front().name;
  for (int i = 2; fs::exists(state_.folder() / (request + ".json")); ++i) {
    request = process.side + "/requests/" + process.tasks.front().name + "." + std::to_string(i);
  }
  request += ".json";
  state_.write(request, request_of(process, job_, state_.folder(), recorded_draws(state_)).dump(2) + "\n");
  state_.add_file(request);

  evidence::Command command;
  command.words = {interpreter(job_.settings, process.side), "-u", state_.worker().string(), "--request",
                   (state_.folder() / request).string()};
  command.folder = job_.folder.empty() ? fs::current_path() : job_.folder;
  command.out = side / "stdout.log";
  command.err = side / "stderr.log";
  const std::string plugin = job_.settings.text("candidate", "plugin");
  if (process.side == "reference")
    command.environment.emplace_back("TORCH_DEVICE_BACKEND_AUTOLOAD", "0");
  else if (plugin != "auto")
    command.environment.emplace_back("TPUPILOT_PLUGIN", plugin);

  std::set<std::string> tasks = {""};
  for (const Task& task : process.tasks) tasks.insert(task.name);
  return std::make_unique<Worker>(evidence::WorkerProcess::start(command, side / "events.jsonl", std::move(tasks)));
}

// A worker says at its start what is installed: all evidence of a side comes from one environment, or the run is
// refused.
void WorkerLauncher::event(const std::string& side, const json& event) {
  const bool elsewhere = side == "reference" && !job_.settings.text("reference", "evidence").empty();
  if (event["event"] != "packages" || elsewhere || !state_.done().contains(side + "/environment")) return;
  json recorded;
  for (const json& known : state_.events(side)) {
    if (known["event"] == "environment") recorded = known;
  }
  const std::string changed = recorded.is_null() ? "" : environment_change(recorded, event);
  if (changed.empty()) return;
  throw Error(
      "[env.pinned] the " + side + "'s environment changed since this run began: " + changed +
      ". Evidence of two environments cannot be compared: put the former back, and the same command goes on; or "
      "begin a new run (--fresh, or another --out), with --parent if this is the one variable under test.");
}

}  // namespace tpupilot::pilot
