#include "pilot/scheduler.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "pilot/errors.h"
#include "pilot/job_error.h"

namespace tpupilot::pilot {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

namespace {

std::string key(const Process& process, const std::string& task) { return process.side + "/" + task; }

// One process at work, and what its events say so far.
struct Active {
  Process process;
  std::unique_ptr<RunningWorker> worker;
  Clock::time_point last_event = Clock::now();
  int64_t begun = 0, ended = 0;  // saves of a crash-save
  std::optional<json> error = std::nullopt;

  bool in_save() const { return ended > 0 && begun > ended; }
};

class Schedule {
 public:
  Schedule(const std::vector<Process>& plan, std::set<std::string>& done, Launcher& launcher,
           const ScheduleOptions& options, Progress& progress)
      : waiting_(remaining(plan, done)), done_(done), launcher_(launcher), options_(options), progress_(progress) {}

  std::vector<Failure> run() {
    while (true) {
      start_ready();
      if (active_.empty()) break;
      for (size_t i = 0; i < active_.size();) {
        if (step(active_[i]))
          ++i;
        else
          active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (options_.interrupted && options_.interrupted->load()) {
        active_.clear();
        throw Interrupted(
            "[run] interrupted; the workers are stopped and their finished tasks are kept: the same command goes on.");
      }
      if (is_hopeless())
        active_.clear(), waiting_.clear();
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(killing() ? 1 : 15));
    }
    return failures_;
  }

 private:
  // One process a side: both append to their side's events.
  bool ready(const Process& process) const {
    for (const Active& active : active_) {
      if (active.process.side == process.side) return false;
    }
    return std::all_of(process.after.begin(), process.after.end(),
                       [&](const std::string& task) { return done_.contains(task); });
  }

  void start_ready() {
    for (size_t i = 0; i < waiting_.size();) {
      if (!ready(waiting_[i])) {
        ++i;
        continue;
      }
      Process process = waiting_[i];
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      auto worker = launcher_.launch(process);
      active_.push_back({std::move(process), std::move(worker)});
    }
  }

  bool killing() const {
    return std::any_of(active_.begin(), active_.end(),
                       [](const Active& active) { return active.process.kill_in_save; });
  }

  bool is_hopeless() const {
    return std::any_of(failures_.begin(), failures_.end(), [](const Failure& failure) {
      return failure.exit_code == kCannotWrite || is_of_reference(failure);
    });
  }

  // False when the process is over.
  bool step(Active& active) {
    const auto over = active.worker->ended();  // asked before the events are read: what it wrote last is not missed
    read_events(active);
    if (over) {
      if (!all_done(active)) fail(active, describe(active, *over), over->signal ? 0 : over->exit_code);
      return false;
    }
    if (active.process.kill_in_save && active.in_save() && kill_inside_save(active)) return false;
    const std::chrono::duration<double> silent = Clock::now() - active.last_event;
    if (silent.count() > options_.step_timeout) {
      active.worker->kill();
      std::ostringstream why;
      why << "made no progress for " << options_.step_timeout << " s (pilot.step_timeout) and was stopped";
      fail(active, why.str(), 0);
      return false;
    }
    return true;
  }

  // Paused first: between the event and the signal the save may have ended.
  bool kill_inside_save(Active& active) {
    active.worker->pause();
    read_events(active);
    if (!active.in_save()) {
      active.worker->go_on();
      return false;
    }
    active.worker->kill();
    finish_task(active, active.process.tasks.back().name, 0);
    return true;
  }

  void read_events(Active& active) {
    for (const json& event : active.worker->new_events()) {
      active.last_event = Clock::now();
      launcher_.event(active.process.side, event);
      const std::string kind = event.value("event", "");
      if (kind == "task.end")
        finish_task(active, event.value("task", ""), event.value("seconds", 0.0));
      else if (kind == "error")
        active.error = event;
      else if (kind == "save.begin")
        active.begun = event.value("number", int64_t{0});
      else if (kind == "save.end")
        active.ended = event.value("number", int64_t{0});
      progress_.event(active.process.side, event);
    }
  }

  void finish_task(const Active& active, const std::string& task, double seconds) {
    if (!done_.insert(key(active.process, task)).second) return;
    launcher_.task_done(active.process.side, task);
    progress_.task_ends(key(active.process, task), seconds);
  }

  bool all_done(const Active& active) const {
    return std::all_of(active.process.tasks.begin(), active.process.tasks.end(),
                       [&](const Task& task) { return done_.contains(key(active.process, task.name)); });
  }

  static std::string describe(const Active& active, const Ended& over) {
    if (over.signal)
      return "was killed by signal " + std::to_string(over.signal) +
             (over.signal == 9 ? " (out of memory, or by hand)" : "");
    if (active.error) return "raised " + describe_error(*active.error);
    return "ended with exit code " + std::to_string(over.exit_code) + " before its tasks did; its stderr.log says more";
  }

  void fail(const Active& active, const std::string& why, int exit_code) {
    for (const Task& task : active.process.tasks) {
      if (done_.contains(key(active.process, task.name))) continue;
      failures_.push_back({active.process.side, task.name, why, active.error, exit_code});
      progress_.note("  " + key(active.process, task.name) + " " + why);
      return;
    }
  }

  std::vector<Process> waiting_;
  std::vector<Active> active_;
  std::set<std::string>& done_;
  std::vector<Failure> failures_;
  Launcher& launcher_;
  const ScheduleOptions& options_;
  Progress& progress_;
};

}  // namespace

bool is_of_reference(const Failure& failure) {
  return failure.side == "reference" && !tasks_after_the_candidate().contains(failure.task);
}

std::vector<Process> remaining(const std::vector<Process>& plan, const std::set<std::string>& done) {
  std::vector<Process> left;
  for (Process process : plan) {
    std::erase_if(process.tasks, [&](const Task& task) { return done.contains(key(process, task.name)); });
    if (!process.tasks.empty()) left.push_back(std::move(process));
  }
  return left;
}

std::vector<Failure> run_processes(const std::vector<Process>& plan, std::set<std::string>& done, Launcher& launcher,
                                   const ScheduleOptions& options, Progress& progress) {
  return Schedule(plan, done, launcher, options, progress).run();
}

}  // namespace tpupilot::pilot
