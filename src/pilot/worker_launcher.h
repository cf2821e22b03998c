// Starts workers for the scheduler: writes the request, starts the interpreter, follows events.jsonl.
#pragma once

#include "pilot/run_state.h"
#include "pilot/scheduler.h"

namespace tpupilot::pilot {

// The interpreter of a side: its `python` setting, else $TPUPILOT_PYTHON, else the one beside this program, else
// python3.
std::string interpreter(const Settings& settings, const std::string& side);

// The request of docs/worker-protocol.md for one process of a plan. `draws`: the file that kReplayReference stands for.
nlohmann::json request_of(const Process& process, const Job& job, const std::filesystem::path& folder,
                          const std::string& draws);

class WorkerLauncher : public Launcher {
 public:
  WorkerLauncher(const Job& job, RunState& state) : job_(job), state_(state) {}
  std::unique_ptr<RunningWorker> launch(const Process& process) override;
  void event(const std::string& side, const nlohmann::json& event) override;
  void task_done(const std::string& side, const std::string& task) override { state_.task_done(side, task); }

 private:
  const Job& job_;
  RunState& state_;
};

}  // namespace tpupilot::pilot
