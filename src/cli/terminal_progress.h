// Progress on stderr: one live line on a terminal, plain lines in a pipe.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "pilot/progress.h"

namespace tpupilot::cli {

bool color_wanted(int descriptor);  // a terminal, NO_COLOR unset, TERM not dumb

class TerminalProgress : public pilot::Progress {
 public:
  // `checks`: also each verdict (where stdout does not show them).
  explicit TerminalProgress(bool checks);
  ~TerminalProgress() override;

  void note(const std::string& line) override;
  void gate_begins(int gate, size_t tasks) override;
  void task_ends(const std::string& side_task, double seconds) override;
  void event(const std::string& side, const nlohmann::json& event) override;
  void check_ends(const pilot::Check& check, const pilot::CheckResult& result) override;

 private:
  void print(const std::string& line);
  void redraw();
  void clear();

  bool checks_, live_, color_;
  bool drawn_ = false;
  int gate_ = 0;
  size_t tasks_ = 0, ended_ = 0;
  std::map<std::string, std::string> doing_;  // by side
  std::chrono::steady_clock::time_point last_;
};

}  // namespace tpupilot::cli
