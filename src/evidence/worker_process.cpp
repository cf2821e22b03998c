#include "evidence/worker_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "evidence/errors.h"
#include "evidence/run_folder.h"
#include "evidence/write_file.h"

namespace tpupilot::evidence {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// In the child, between fork and exec. Writes errno to `report` if it cannot start.
[[noreturn]] void become(const Command& command, pid_t pilot, int out, int err, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);      // a pilot that dies takes its workers along
  if (::getppid() != pilot) ::_exit(127);  // it died before that
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  for (const auto& [name, value] : command.environment) ::setenv(name.c_str(), value.c_str(), 1);
  // Two workers share the cores: OpenMP threads that spin while they wait take them from the other (measured: 0.4 s
  // instead of 28 s for 20 small steps). No effect on numbers; the environment event records it.
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", 0);
  std::vector<char*> words;
  words.reserve(command.words.size() + 1);
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  if (::chdir(command.folder.c_str()) == 0) ::execvp(words[0], words.data());
  const int why = errno;
  if (::write(report, &why, sizeof why) < 0) ::_exit(126);
  ::_exit(127);
}

class Log {
 public:
  explicit Log(const fs::path& file)
      : descriptor_(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) cannot_write(file, errno);
  }
  ~Log() { ::close(descriptor_); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

pid_t spawn(const Command& command) {
  const Log out(command.out), err(command.err);
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0)
    throw Error(std::string("[worker] no pipe: ") + std::strerror(errno), Exit::Internal);
  const pid_t pilot = ::getpid(), pid = ::fork();
  if (pid == 0) become(command, pilot, out.get(), err.get(), report[1]);
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

}  // namespace

std::unique_ptr<WorkerProcess> WorkerProcess::start(const Command& command, const fs::path& events,
                                                    std::set<std::string> tasks) {
  std::error_code none;
  const auto offset = fs::file_size(events, none);
  const pid_t pid = spawn(command);
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(pid, events, none ? 0 : offset, std::move(tasks)));
}

WorkerProcess::WorkerProcess(pid_t pid, fs::path events, std::uintmax_t offset, std::set<std::string> tasks)
    : pid_(pid), events_(std::move(events)), offset_(offset), tasks_(std::move(tasks)) {}

WorkerProcess::~WorkerProcess() {
  if (!over_) kill();
}

std::vector<json> WorkerProcess::new_events() {
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

std::optional<Ended> WorkerProcess::ended() {
  if (over_) return over_;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  over_ = WIFSIGNALED(status) ? Ended{0, WTERMSIG(status)} : Ended{WEXITSTATUS(status), 0};
  ::kill(-pid_, SIGKILL);  // what it started may have outlived it
  return over_;
}

void WorkerProcess::pause() { ::kill(-pid_, SIGSTOP); }
void WorkerProcess::go_on() { ::kill(-pid_, SIGCONT); }

void WorkerProcess::kill() {
  ::kill(-pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  over_ = Ended{0, SIGKILL};
}

}  // namespace tpupilot::evidence
