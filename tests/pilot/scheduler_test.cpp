#include "pilot/scheduler.h"

#include <gtest/gtest.h>

#include <map>

#include "pilot/errors.h"

namespace tpupilot::pilot {
namespace {

using nlohmann::json;

json worker_event(const std::string& kind, const std::string& task, json more = json::object()) {
  more["event"] = kind;
  more["task"] = task;
  return more;
}

// What a worker does: a list of events, one given out per look, then its end.
struct Script {
  std::vector<json> events;
  std::optional<Ended> end = Ended{};  // nothing = it hangs
};

struct Log {
  std::vector<std::string> started, ended_tasks, killed;
  size_t running = 0, most = 0;
};

class FakeWorker : public RunningWorker {
 public:
  FakeWorker(std::string name, Script script, Log& log)
      : name_(std::move(name)), script_(std::move(script)), log_(log) {
    log_.most = std::max(log_.most, ++log_.running);
  }
  ~FakeWorker() override { --log_.running; }

  std::vector<json> new_events() override {
    if (next_ == script_.events.size() || paused_) return {};
    return {script_.events[next_++]};
  }
  std::optional<Ended> ended() override { return next_ == script_.events.size() ? script_.end : std::nullopt; }
  void pause() override { paused_ = true; }
  void go_on() override { paused_ = false; }
  void kill() override { log_.killed.push_back(name_); }

 private:
  std::string name_;
  Script script_;
  Log& log_;
  size_t next_ = 0;
  bool paused_ = false;
};

class FakeLauncher : public Launcher {
 public:
  std::unique_ptr<RunningWorker> launch(const Process& process) override {
    log.started.push_back(process.name());
    Script script;
    if (const auto found = scripts.find(process.name()); found != scripts.end())
      script = found->second;
    else
      for (const Task& task : process.tasks) script.events.push_back(worker_event("task.end", task.name));
    return std::make_unique<FakeWorker>(process.name(), script, log);
  }
  void task_done(const std::string& side, const std::string& task) override {
    log.ended_tasks.push_back(side + "/" + task);
  }

  std::map<std::string, Script> scripts;
  Log log;
};

Process process(const std::string& side, const std::vector<std::string>& tasks,
                const std::vector<std::string>& after = {}) {
  Process made;
  made.side = side;
  made.after = after;
  for (const std::string& task : tasks) made.tasks.push_back({task, json::object()});
  return made;
}

class SchedulerTest : public testing::Test {
 protected:
  std::vector<Failure> run(const std::vector<Process>& plan) {
    return run_processes(plan, done, launcher, options, progress);
  }

  FakeLauncher launcher;
  std::set<std::string> done;
  ScheduleOptions options;
  Progress progress;
};

TEST_F(SchedulerTest, StartsWhatIsReadyOneASide) {
  const auto failures =
      run({process("reference", {"base"}), process("candidate", {"base", "fault"}, {"reference/base"}),
           process("reference", {"repeat"}), process("candidate", {"straight"})});
  EXPECT_TRUE(failures.empty());
  EXPECT_EQ(done.size(), 5u);
  EXPECT_EQ(launcher.log.started.front(), "reference/base");
  EXPECT_EQ(launcher.log.started[1], "candidate/straight");
  EXPECT_EQ(launcher.log.most, 2u);
}

TEST_F(SchedulerTest, DoesNotRepeatWhatIsDone) {
  done = {"reference/base", "candidate/base"};
  run({process("reference", {"base"}), process("candidate", {"base", "fault"}, {"reference/base"})});
  EXPECT_EQ(launcher.log.started, std::vector<std::string>{"candidate/fault"});
  EXPECT_EQ(launcher.log.ended_tasks, std::vector<std::string>{"candidate/fault"});
}

TEST_F(SchedulerTest, ACandidateThatRaisesLeavesTheOthersRunning) {
  launcher.scripts["candidate/base"] = {
      {worker_event("error", "base", {{"type", "NotImplementedError"}, {"message", "no row for aten::foo"}})},
      Ended{1, 0}};
  const auto failures = run({process("candidate", {"base", "fault"}),
                             process("candidate", {"after"}, {"candidate/base"}), process("reference", {"repeat"})});
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].task, "base");
  EXPECT_EQ(failures[0].exit_code, 1);
  EXPECT_NE(failures[0].why.find("no row for aten::foo"), std::string::npos);
  EXPECT_EQ(done, std::set<std::string>{"reference/repeat"});
}

TEST_F(SchedulerTest, AReferenceThatFailsEndsEverything) {
  launcher.scripts["reference/base"] = {{}, Ended{0, 9}};
  launcher.scripts["candidate/straight"] = {{}, std::nullopt};
  const auto failures = run({process("reference", {"base"}), process("candidate", {"straight"})});
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_NE(failures[0].why.find("signal 9"), std::string::npos);
  EXPECT_EQ(launcher.log.running, 0u);
}

TEST_F(SchedulerTest, AWorkerWithoutProgressIsStopped) {
  options.step_timeout = 0.05;
  launcher.scripts["candidate/base"] = {{}, std::nullopt};
  const auto failures = run({process("candidate", {"base"})});
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_NE(failures[0].why.find("no progress for 0.05 s"), std::string::npos);
  EXPECT_EQ(launcher.log.killed, std::vector<std::string>{"candidate/base"});
}

TEST_F(SchedulerTest, AnEndWithoutTheTasksEndIsAFailure) {
  launcher.scripts["candidate/base"] = {{worker_event("task.end", "base")}, Ended{0, 0}};
  const auto failures = run({process("candidate", {"base", "fault"})});
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].task, "fault");
}

TEST_F(SchedulerTest, KillsInsideASaveAfterOneWasFinished) {
  const auto save = [](const char* kind, int number) { return worker_event(kind, "crash-save", {{"number", number}}); };
  launcher.scripts["candidate/crash-save"] = {{save("save.begin", 1), save("save.end", 1), save("save.begin", 2)},
                                              std::nullopt};
  Process crash = process("candidate", {"crash-save"});
  crash.kill_in_save = true;
  EXPECT_TRUE(run({crash}).empty());
  EXPECT_EQ(launcher.log.killed, std::vector<std::string>{"candidate/crash-save"});
  EXPECT_TRUE(done.contains("candidate/crash-save"));
}

TEST_F(SchedulerTest, InterruptionEndsTheWorkersAndKeepsWhatIsDone) {
  std::atomic<bool> interrupted{true};
  options.interrupted = &interrupted;
  launcher.scripts["candidate/straight"] = {{}, std::nullopt};
  EXPECT_THROW(run({process("candidate", {"straight"}), process("reference", {"base"})}), Interrupted);
  EXPECT_EQ(launcher.log.running, 0u);
}

}  // namespace
}  // namespace tpupilot::pilot
