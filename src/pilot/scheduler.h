// Runs the processes of a plan: one a side at once, each when what it waits for has ended. Knows workers through the
// two interfaces below, so that it is tested without any.
#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "evidence/worker_process.h"
#include "pilot/plan.h"
#include "pilot/progress.h"

namespace tpupilot::pilot {

using evidence::Ended;

class RunningWorker {
 public:
  virtual ~RunningWorker() = default;  // a worker that still runs is killed
  virtual std::vector<nlohmann::json> new_events() = 0;
  virtual std::optional<Ended> ended() = 0;
  virtual void pause() = 0;
  virtual void go_on() = 0;
  virtual void kill() = 0;
};

class Launcher {
 public:
  virtual ~Launcher() = default;
  virtual std::unique_ptr<RunningWorker> launch(const Process& process) = 0;
  // Whatever a worker says, in order, before anything follows from it. May throw: the workers are then stopped.
  virtual void event(const std::string& /*side*/, const nlohmann::json& /*event*/) {}
  // A task ended (or was killed on purpose): its files are complete.
  virtual void task_done(const std::string& side, const std::string& task) = 0;
};

struct Failure {
  std::string side, task;               // the task that did not end
  std::string why;                      // "was killed by signal 9", "made no progress for 600 s", the error in words
  std::optional<nlohmann::json> error;  // the worker's error event
  int exit_code = 0;                    // of the worker; 0 if a signal or the pilot ended it
};

// The old environment itself failed; what it only could not do with the candidate's files is for the checks to judge.
bool is_of_reference(const Failure& failure);

struct ScheduleOptions {
  double step_timeout = 600;  // seconds without an event
  const std::atomic<bool>* interrupted = nullptr;
};

// The worker's own exit code for a file that it cannot write; its error event names the file, if that could be written.
inline constexpr int kCannotWrite = 3;

// `done` (side/task) grows with every task that ends; tasks in it are not run. A failure on the reference ends the
// others too: nothing can be compared any more. So does a file that cannot be written. Throws Interrupted after all
// workers are gone.
std::vector<Failure> run_processes(const std::vector<Process>& plan, std::set<std::string>& done, Launcher& launcher,
                                   const ScheduleOptions& options, Progress& progress);

// `plan` without the tasks that are done, and without processes that are empty then.
std::vector<Process> remaining(const std::vector<Process>& plan, const std::set<std::string>& done);

}  // namespace tpupilot::pilot
