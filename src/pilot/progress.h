// What a pilot tells whoever watches it. Called from the pilot's thread only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "pilot/check.h"

namespace tpupilot::pilot {

class Progress {
 public:
  virtual ~Progress() = default;
  virtual void note(const std::string& /*line*/) {}  // one line worth keeping
  virtual void gate_begins(int /*gate*/, size_t /*tasks*/) {}
  virtual void task_ends(const std::string& /*side_task*/, double /*seconds*/) {}
  virtual void event(const std::string& /*side*/, const nlohmann::json& /*event*/) {}  // each event, as it is written
  virtual void check_ends(const Check&, const CheckResult&) {}
};

}  // namespace tpupilot::pilot
