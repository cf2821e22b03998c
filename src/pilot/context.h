// What the judge functions see: the settings and what the workers left, read-only. Evidence that is missing, changed or
// cut short is a NotJudgedError: the caller turns it into a verdict, never into a pass.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "pilot/check.h"
#include "pilot/settings.h"

namespace tpupilot::pilot {

class RunState;

class NotJudgedError : public std::runtime_error {
 public:
  explicit NotJudgedError(const std::string& why) : std::runtime_error(why) {}
};

class Context {
 public:
  Context(const Settings& settings, const RunState& run) : settings_(settings), run_(run) {}

  const Settings& settings() const { return settings_; }
  const std::filesystem::path& folder() const;
  // Both sides are the same kind of device: the pilot rehearses itself.
  bool self_rehearsal() const;
  std::string injected() const;  // the fault that --inject gave to the candidate, or ""

  // The events of the last attempt that ended. NotJudgedError if no attempt ended (with the worker's error).
  std::vector<nlohmann::json> all(const std::string& side, const std::string& task, const std::string& kind) const;
  // The last event of that kind; NotJudgedError if there is none.
  nlohmann::json need(const std::string& side, const std::string& task, const std::string& kind) const;
  std::optional<nlohmann::json> find(const std::string& side, const std::string& task, const std::string& kind) const;
  bool ended(const std::string& side, const std::string& task) const;
  // The last `error` event of a task that never ended.
  std::optional<nlohmann::json> error(const std::string& side, const std::string& task) const;
  // The events of the last attempt of a task that the pilot killed on purpose.
  std::vector<nlohmann::json> killed(const std::string& side, const std::string& task) const;
  // The checkpoint event of `task` whose folder is checkpoints/<name>.
  nlohmann::json checkpoint(const std::string& side, const std::string& task, const std::string& name) const;
  // The tensor file of one step, relative to the run folder. `verified` reads its hash again.
  std::string tensors(const std::string& side, const std::string& task, const std::string& what, int64_t step) const;
  // NotJudgedError unless the file has the hash that the manifest recorded. Returns the full path.
  std::filesystem::path verified(const std::string& relative) const;
  const RunState& run() const { return run_; }

  std::string lock_hash(const std::string& side) const;
  const nlohmann::json& parent_manifest() const;  // null without --parent
  const nlohmann::json& manifest() const;
  const std::map<std::string, CheckResult>& results() const;  // judged so far, in this run

 private:
  const Settings& settings_;
  const RunState& run_;
};

}  // namespace tpupilot::pilot
