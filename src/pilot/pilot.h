// A whole run: settings to sheet. Knows nothing of terminals.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "pilot/errors.h"
#include "pilot/progress.h"

namespace tpupilot::pilot {

struct RunOptions {
  std::filesystem::path job;             // folder, job file or pilot.toml
  std::vector<std::string> assignments;  // --set
  std::optional<int> gate;               // --gate N: gates 0..N
  std::filesystem::path out;             // the run folder; empty = runs/<job>/<UTC time>-<hash>
  std::filesystem::path parent;          // the run folder that this one is a rerun of
  std::string inject;                    // a fault for the candidate's workers
  bool fresh = false;                    // a new folder, although an unfinished one would fit
  bool dry_run = false;
  bool record = false;  // the reference side only, for a later run elsewhere
  std::string command;  // for the sheet: repeats this run
  std::string tool_version;
  std::string worker_source;                                     // text of worker.py
  std::function<std::string(const nlohmann::json& sheet)> page;  // report.html, which a run is finished with
  const std::atomic<bool>* interrupted = nullptr;
};

struct RunOutcome {
  nlohmann::json sheet;          // docs/worker-protocol.md, "The sheet"
  std::filesystem::path folder;  // the run folder; sheet.json lies in it
};

// Runs the workers that are missing, judges, writes sheet.json. Error / Interrupted as errors.h; evidence, once
// written, stays. A --dry-run starts nothing and returns {"plan": [...]} as the sheet.
RunOutcome run(const RunOptions& options, Progress& progress);

// Runs the reference side alone: what a later run takes with [reference] evidence. The sheet is {"tasks": [...]}.
RunOutcome record(const RunOptions& options, Progress& progress);

// What a machine without tpupilot needs to record the reference side of a job: the worker's text with the plan in it.
std::string standalone_recorder(const RunOptions& options);

// A whole file or none. Error (Usage) that names it if it cannot be written.
void write_file(const std::filesystem::path& file, const std::string& text);

Exit exit_code(const nlohmann::json& sheet);

// The two environments as their own workers describe them, and what gate 0 says of them:
// {"environments": {...}, "checks": [...], "findings": n}. Leaves nothing behind.
nlohmann::json doctor(const RunOptions& options, Progress& progress);

}  // namespace tpupilot::pilot
