// Which worker tasks the asked gates need, grouped into few processes. Pure: the same settings give the same plan.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "pilot/settings.h"

namespace tpupilot::pilot {

struct Task {
  std::string name;        // unique per side
  nlohmann::json request;  // as docs/worker-protocol.md; draws may name kReplayReference, see below
};

// In a task's draws: {"mode": "replay", "file": kReplayReference} stands for the file that reference/base recorded.
inline constexpr const char* kReplayReference = "@reference/base";

struct Process {
  std::string side;  // "reference" or "candidate"
  std::vector<Task> tasks;
  std::vector<std::string> after;  // tasks that must have ended, as side/task
  bool kill_in_save = false;       // the last task writes checkpoints until it is killed inside one

  std::string name() const;  // side/first task
};

// The steps of ckpt.resume: saved in the middle of epoch 1 and at its end, three more steps after each.
struct ResumeSteps {
  int64_t epoch;        // steps an epoch
  int64_t mid, border;  // the checkpoint is written after this step
  int64_t end;          // steps of the straight run
};
ResumeSteps resume_steps(const Settings& settings);

struct PlanInput {
  const Settings& settings;
  std::filesystem::path folder;  // the run folder, absolute: checkpoints are named by their full path
  std::string inject;            // a fault for the candidate's workers, or ""
};

// The processes of one gate; empty for gates that this release does not run. Gate 0 and 1 here.
std::vector<Process> plan_gate(int gate, const PlanInput& input);

// What `record` leaves of the old environment: all that gates 0 and 1 need of the reference, and its module trace.
std::vector<Process> plan_record(const PlanInput& input);

// Reference tasks that load what the candidate saved: they cannot be recorded beforehand.
const std::set<std::string>& tasks_after_the_candidate();

// After a stop of a parity check: the same steps again on both sides, with every module recorded.
std::vector<Process> plan_trace(const PlanInput& input);

// The faults that --inject knows.
const std::vector<std::string_view>& fault_kinds();

}  // namespace tpupilot::pilot
