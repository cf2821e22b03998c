// run, doctor, report: what the pilot does, shown.
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iostream>

#include "cli/commands.h"
#include "cli/terminal_progress.h"
#include "report/html.h"
#include "report/terminal.h"

namespace tpupilot::cli {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::atomic<bool> stop_asked{false};

extern "C" void on_signal(int) { stop_asked.store(true); }

json read_sheet(const fs::path& folder) {
  std::ifstream in(folder / "sheet.json");
  if (!in) throw pilot::Error("[report] " + folder.string() + " has no sheet.json; give the folder of a finished run.");
  json sheet = json::parse(in, nullptr, false);
  if (sheet.is_discarded() || !sheet.is_object())
    throw pilot::Error("[report] " + (folder / "sheet.json").string() + " is not a sheet.");
  return sheet;
}

// With --json stdout always holds one document, also when there is no result.
template <typename Function>
int with_json_errors(bool as_json, Function&& function) {
  try {
    return function();
  } catch (const pilot::Error& error) {
    if (as_json) {
      std::cout << json{{"error", {{"message", error.what()}, {"exit_code", static_cast<int>(error.code())}}}}.dump(2)
                << "\n";
    }
    throw;
  }
}

void show_plan(const json& plan) {
  std::cout << "would run in " << plan.at("folder").get<std::string>() << "\n";
  for (const json& process : plan.at("plan")) {
    std::cout << "gate " << process["gate"] << "  " << process["side"].get<std::string>() << ":";
    for (const json& task : process["tasks"]) std::cout << " " << task.get<std::string>();
    std::cout << "\n";
  }
}

}  // namespace

const std::atomic<bool>& interrupted() { return stop_asked; }

void watch_signals() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESETHAND;  // a second Ctrl-C ends at once
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is met as an error of the write, like a full disk
}

std::string shell_command(int argc, char** argv) {
  std::string command = "tpupilot";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool plain =
        !word.empty() &&
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") ==
            std::string::npos;
    std::string quoted = "'";
    for (char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    command += " " + (plain ? word : quoted + "'");
  }
  return command;
}

int run_command(pilot::RunOptions options, bool as_json) {
  return with_json_errors(as_json, [&] {
    TerminalProgress progress(as_json);
    options.page = report::html;
    const pilot::RunOutcome outcome = pilot::run(options, progress);
    if (options.dry_run) {
      if (as_json)
        std::cout << outcome.sheet.dump(2) << "\n";
      else
        show_plan(outcome.sheet);
      return 0;
    }
    if (as_json)
      std::cout << outcome.sheet.dump(2) << "\n";
    else
      std::cout << report::terminal_text(outcome.sheet, color_wanted(STDOUT_FILENO));
    progress.note("sheet: " + (outcome.folder / "sheet.json").string() +
                  "\nreport: " + (outcome.folder / "report.html").string());
    return static_cast<int>(pilot::exit_code(outcome.sheet));
  });
}

int record_command(pilot::RunOptions options, bool as_json) {
  return with_json_errors(as_json, [&] {
    TerminalProgress progress(as_json);
    options.record = true;
    const pilot::RunOutcome outcome = pilot::record(options, progress);
    if (as_json) {
      std::cout << json{{"folder", outcome.folder.string()}, {"tasks", outcome.sheet.at("tasks")}}.dump(2) << "\n";
    } else {
      std::cout << "recorded in " << outcome.folder.string()
                << "\njudge it, here or on another machine, with\n  tpupilot run " << options.job.string()
                << " --set reference.evidence=" << outcome.folder.string() << "\n";
    }
    return 0;
  });
}

int doctor_command(pilot::RunOptions options, bool as_json) {
  return with_json_errors(as_json, [&] {
    TerminalProgress progress(as_json);
    const json found = pilot::doctor(options, progress);
    if (as_json) {
      std::cout << found.dump(2) << "\n";
    } else {
      for (const auto& [side, text] : found.at("summary").items())
        std::cout << side << ": " << text.get<std::string>() << "\n";
      for (const json& check : found.at("checks")) {
        std::string id = check["id"], verdict = check["verdict"];
        id.resize(20, ' ');
        verdict.resize(16, ' ');
        std::cout << "  " << id << verdict << check["why"].get<std::string>() << "\n";
      }
    }
    return found.at("findings") == 0 ? 0 : 1;
  });
}

int report_command(const std::string& run_folder) {
  const json sheet = read_sheet(run_folder);
  pilot::write_file(fs::path(run_folder) / "report.html", report::html(sheet));
  std::cout << report::terminal_text(sheet, color_wanted(STDOUT_FILENO));
  std::cerr << "report: " << (fs::path(run_folder) / "report.html").string() << "\n";
  return 0;
}

}  // namespace tpupilot::cli
