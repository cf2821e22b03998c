// checks, keys, ops, worker: lists and files that need no run.
#include <iostream>
#include <sstream>

#include "cli/commands.h"
#include "cli/worker_source.h"
#include "ops/row.h"
#include "pilot/settings.h"

namespace tpupilot::cli {

using nlohmann::json;

int checks_command(bool markdown, bool as_json) {
  if (as_json) {
    std::cout << pilot::checks_json().dump(2) << "\n";
  } else if (markdown) {
    std::cout << pilot::checks_markdown();
  } else {
    for (const pilot::Check& check : pilot::registry()) {
      std::string id(check.id);
      id.resize(std::max<size_t>(id.size(), 22), ' ');
      std::cout << id << (check.judge ? "" : "(not in this release) ") << check.title << "\n";
    }
  }
  return 0;
}

int keys_command(bool markdown, bool as_json) {
  if (as_json) {
    std::cout << pilot::keys_json().dump(2) << "\n";
  } else if (markdown) {
    std::cout << pilot::keys_markdown();
  } else {
    for (const pilot::Key& key : pilot::keys()) {
      std::cout << key.section << "." << key.name << " = " << key.fallback.dump() << "  " << key.help << "\n";
    }
  }
  return 0;
}

namespace {

// "add" names every overload of it, "add.out" one.
bool named(std::string_view overload, const std::string& name) {
  return name.empty() || overload == name || overload.substr(0, overload.find('.')) == name;
}

std::string unknown_op(const std::string& name) {
  std::vector<std::string_view> known;
  for (const ops::Row& row : ops::rows()) {
    for (std::string_view overload : row.overloads) known.push_back(overload);
  }
  const std::string near = pilot::nearest(name, known);
  return "[ops] the backend has no row for `" + name + "`" + (near.empty() ? "." : "; did you mean `" + near + "`?");
}

}  // namespace

int ops_command(const std::string& name, bool markdown, bool as_json) {
  json found = json::array();
  for (const ops::Row& row : ops::rows()) {
    for (std::string_view overload : row.overloads) {
      if (named(overload, name))
        found.push_back({{"overload", overload}, {"random", row.random != nullptr}, {"remark", row.remark}});
    }
  }
  if (found.empty() && !name.empty()) {
    if (as_json) std::cout << "[]\n";
    std::cerr << "tpupilot: " << unknown_op(name) << "\n";
    return 1;
  }
  if (as_json) {
    std::cout << found.dump(2) << "\n";
    return 0;
  }
  if (markdown)
    std::cout << "# Support matrix\n\nMade by `tpupilot ops --markdown`: the ATen overloads that the backend has a row "
                 "for.\n\n"
                 "| overload | remark |\n|---|---|\n";
  for (const json& row : found) {
    const std::string overload = row["overload"], remark = row["remark"];
    if (markdown) {
      std::cout << "| `aten::" << overload << "` | " << remark << " |\n";
    } else {
      std::cout << "aten::" << overload << (remark.empty() ? "" : "  " + remark) << "\n";
    }
  }
  return 0;
}

int worker_command(const std::string& export_to, const pilot::RunOptions& options) {
  const std::string text = options.job.empty() ? std::string(worker_source()) : pilot::standalone_recorder(options);
  pilot::write_file(export_to, text);
  std::cerr << "wrote " << export_to << " (" << text.size() << " bytes)\n";
  if (!options.job.empty()) {
    std::cerr << "on the old machine:  python " << std::filesystem::path(export_to).filename().string()
              << " --record JOB.py --out FOLDER\nthen copy FOLDER here:  tpupilot run " << options.job.string()
              << " --set reference.evidence=FOLDER\n";
  }
  return 0;
}

}  // namespace tpupilot::cli
