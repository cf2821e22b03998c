#include "cli/terminal_progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tpupilot::cli {

bool color_wanted(int descriptor) {
  const char* none = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(descriptor) && !(none && *none) && !(term && std::strcmp(term, "dumb") == 0);
}

namespace {

size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

const char* verdict_color(pilot::Verdict verdict) {
  switch (verdict) {
    case pilot::Verdict::Pass:
      return "\x1b[32m";
    case pilot::Verdict::Stop:
      return "\x1b[31m";
    case pilot::Verdict::NotJudged:
      return "\x1b[33m";
    case pilot::Verdict::NotApplicable:
      return "\x1b[2m";
  }
  return "";
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

}  // namespace

TerminalProgress::TerminalProgress(bool checks)
    : checks_(checks), live_(isatty(STDERR_FILENO)), color_(color_wanted(STDERR_FILENO)) {}
TerminalProgress::~TerminalProgress() { clear(); }

void TerminalProgress::note(const std::string& line) { print(line); }

void TerminalProgress::gate_begins(int gate, size_t tasks) {
  gate_ = gate;
  tasks_ = tasks;
  ended_ = 0;
  doing_.clear();
  print("gate " + std::to_string(gate) +
        (tasks ? ": " + std::to_string(tasks) + " worker tasks" : ": all evidence is there"));
}

void TerminalProgress::task_ends(const std::string& side_task, double seconds) {
  ++ended_;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  if (!live_) print("  " + padded(side_task, 28) + text);
  redraw();
}

void TerminalProgress::event(const std::string& side, const nlohmann::json& event) {
  std::string text = event.value("task", "");
  if (event.value("event", "") == "step") text += " step " + std::to_string(event.value("step", 0));
  doing_[side] = text;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ > std::chrono::milliseconds(100)) redraw();
}

void TerminalProgress::check_ends(const pilot::Check& check, const pilot::CheckResult& result) {
  if (!checks_) return;
  const std::string verdict = padded(std::string(pilot::verdict_name(result.verdict)), 14);
  print("  " + padded(std::string(check.id), 20) + " " +
        (color_ ? verdict_color(result.verdict) + verdict + "\x1b[0m" : verdict) + " " + result.why);
}

void TerminalProgress::print(const std::string& line) {
  clear();
  std::fprintf(stderr, "%s\n", line.c_str());
}

void TerminalProgress::redraw() {
  if (!live_) return;
  last_ = std::chrono::steady_clock::now();
  std::string line =
      "gate " + std::to_string(gate_) + " [" + std::to_string(ended_) + "/" + std::to_string(tasks_) + "]";
  for (const auto& [side, text] : doing_) line += "  " + side + ": " + text;
  std::fprintf(stderr, "\r\x1b[K%s", line.substr(0, terminal_width() - 1).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void TerminalProgress::clear() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

}  // namespace tpupilot::cli
