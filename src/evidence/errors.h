// How a pilot ends. Exit codes are part of the interface: scripts trust them.
#pragma once

#include <stdexcept>
#include <string>

namespace tpupilot::evidence {

enum class Exit : int { Passed = 0, Stopped = 1, NotJudged = 2, Usage = 3, Internal = 4 };

// A sentence for the user and the exit code that goes with it. `Usage` covers the command line, the pilot file, the job
// file and the two environments: whatever the user can put right.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, Exit code = Exit::Usage) : std::runtime_error(message), code_(code) {}
  Exit code() const { return code_; }

 private:
  Exit code_;
};

// The run was interrupted (Ctrl-C, SIGTERM). The run folder is consistent and the same command goes on.
class Interrupted : public Error {
 public:
  explicit Interrupted(const std::string& message) : Error(message, Exit::NotJudged) {}
};

}  // namespace tpupilot::evidence
