// A run as the pilot works on it: its folder, and the results so far.
#pragma once

#include <map>
#include <string>

#include "evidence/run_folder.h"
#include "pilot/check.h"

namespace tpupilot::pilot {

class RunState : public evidence::RunFolder {
 public:
  using RunFolder::RunFolder;

  std::map<std::string, CheckResult> results;
};

}  // namespace tpupilot::pilot
