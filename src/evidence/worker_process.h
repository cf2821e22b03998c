// A worker: one Python process that appends to a side's events.jsonl.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tpupilot::evidence {

struct Command {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment;  // over ours
  std::filesystem::path folder, out, err;                        // working directory; logs are appended to
};

struct Ended {
  int exit_code = 0;  // meaningless if a signal ended it
  int signal = 0;
};

// In a process group of its own: Ctrl-C reaches the pilot only, and a kill takes its children along. It dies with the
// pilot.
class WorkerProcess {
 public:
  // Follows `events` from its present end, and in it the events of `tasks` only: both processes of a side append to one
  // file. Error (Usage) if the interpreter cannot be started.
  static std::unique_ptr<WorkerProcess> start(const Command& command, const std::filesystem::path& events,
                                              std::set<std::string> tasks);
  ~WorkerProcess();  // kills it if it still runs
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  std::vector<nlohmann::json> new_events();  // complete lines since the last call
  std::optional<Ended> ended();              // never waits
  void pause();
  void go_on();
  void kill();

 private:
  WorkerProcess(pid_t pid, std::filesystem::path events, std::uintmax_t offset, std::set<std::string> tasks);

  pid_t pid_;
  std::filesystem::path events_;
  std::uintmax_t offset_;
  std::set<std::string> tasks_;
  std::optional<Ended> over_;
};

}  // namespace tpupilot::evidence
