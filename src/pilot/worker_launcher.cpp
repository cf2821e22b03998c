#include "pilot/worker_launcher.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "pilot/errors.h"

namespace tpupilot::pilot {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// One Python process, in a process group of its own: Ctrl-C reaches the pilot only, and a kill takes its children
// along.
class WorkerProcess : public RunningWorker {
 public:
  WorkerProcess(pid_t pid, fs::path events, std::uintmax_t offset, std::set<std::string> tasks)
      : pid_(pid), events_(std::move(events)), offset_(offset), tasks_(std::move(tasks)) {}

  ~WorkerProcess() override {
    if (!over_) kill();
  }

  // Both processes of a side append to one file: those of other tasks are left out.
  std::vector<json> new_events() override {
    std::vector<json> found;
    std::ifstream in(events_, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(offset_));
    for (std::string line; std::getline(in, line) && !in.eof();) {
      offset_ += line.size() + 1;
      auto event = parse_event(line);
      if (event && tasks_.contains(event->at("task"))) found.push_back(std::move(*event));
    }
    return found;
  }

  std::optional<Ended> ended() override {
    if (over_) return over_;
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
    over_ = WIFSIGNALED(status) ? Ended{0, WTERMSIG(status)} : Ended{WEXITSTATUS(status), 0};
    ::kill(-pid_, SIGKILL);  // what it started may have outlived it
    return over_;
  }

  void pause() override { ::kill(-pid_, SIGSTOP); }
  void go_on() override { ::kill(-pid_, SIGCONT); }

  void kill() override {
    ::kill(-pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    over_ = Ended{0, SIGKILL};
  }

 private:
  pid_t pid_;
  fs::path events_;
  std::uintmax_t offset_;
  std::set<std::string> tasks_;
  std::optional<Ended> over_;
};

struct Command {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment;  // over ours
  fs::path folder, out, err;                                     // working directory; logs are appended to
};

// In the child, between fork and exec. Writes errno to `report` if it cannot start.
[[noreturn]] void become(const Command& command, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a pilot that dies takes its workers along
  const int in = ::open("/dev/null", O_RDONLY);
  const int out = ::open(command.out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  const int err = ::open(command.err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::dup2(in, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  for (const auto& [name, value] : command.environment) ::setenv(name.c_str(), value.c_str(), 1);
  // Two workers share the cores: OpenMP threads that spin while they wait take them from the other (measured: 0.4 s
  // instead of 28 s for 20 small steps). No effect on numbers; the environment event records it.
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", 0);
  std::vector<char*> words;
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  if (out >= 0 && err >= 0 && ::chdir(command.folder.c_str()) == 0) ::execvp(words[0], words.data());
  const int why = errno;
  if (::write(report, &why, sizeof why) < 0) ::_exit(126);
  ::_exit(127);
}

pid_t start(const Command& command) {
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0)
    throw Error(std::string("[worker] no pipe: ") + std::strerror(errno), Exit::Internal);
  const pid_t pid = ::fork();
  if (pid == 0) become(command, report[1]);
  ::close(report[1]);
  int why = 0;
  const bool failed = pid < 0 || ::read(report[0], &why, sizeof why) == sizeof why;
  if (pid < 0) why = errno;
  ::close(report[0]);
  if (!failed) return pid;
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  throw Error("[worker] cannot start the interpreter " + command.words[0] + ": " + std::strerror(why) +
              "; name one with reference.python or candidate.python, or with TPUPILOT_PYTHON.");
}

// The file of draws that reference/base recorded; "" if it drew nothing.
std::string recorded_draws(const RunState& state) {
  std::string file;
  for (const json& event : state.events("reference")) {
    if (event["event"] == "draws" && event["task"] == "base" && event.contains("file") && event["file"].is_string())
      file = event["file"];
  }
  return file.empty() ? "" : (state.folder() / "reference" / file).string();
}

}  // namespace

std::string interpreter(const Settings& settings, const std::string& side) {
  if (const std::string named = settings.text(side, "python"); !named.empty()) return named;
  const char* from_environment = std::getenv("TPUPILOT_PYTHON");
  return from_environment && *from_environment ? from_environment : "python3";
}

json WorkerLauncher::request_of(const Process& process) const {
  const Settings& settings = job_.settings;
  json tasks = json::array();
  for (const Task& task : process.tasks) {
    json request = task.request;
    request["name"] = task.name;
    if (request.contains("draws") && request["draws"].value("file", "") == kReplayReference)
      request["draws"]["file"] = recorded_draws(state_);
    tasks.push_back(request);
  }
  return {{"protocol", 1},
          {"side", process.side},
          {"out", (state_.folder() / process.side).string()},
          {"job", job_.file.string()},
          {"device", settings.text(process.side, "device")},
          {"seed", settings.integer("job", "seed")},
          {"steps_per_epoch",
           settings.integer("job", "steps_per_epoch") > 0 ? settings.integer("job", "steps_per_epoch") : 8},
          {"autocast", settings.text("reference", "autocast")},
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
  state_.write(request, request_of(process).dump(2) + "\n");
  state_.add_file(request);

  Command command;
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
  std::error_code none;
  const fs::path events = side / "events.jsonl";
  const auto offset = fs::file_size(events, none);
  const pid_t pid = start(command);
  return std::make_unique<WorkerProcess>(pid, events, none ? 0 : offset, std::move(tasks));
}

}  // namespace tpupilot::pilot
