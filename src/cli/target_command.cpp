// ops --target: the op table beside what a release of the TPU backend registers, lacks and gets wrong.
#include <algorithm>
#include <iostream>
#include <map>
#include <tuple>

#include "cli/commands.h"
#include "ops/row.h"
#include "pilot/target_ops.h"

namespace tpupilot::cli {

using nlohmann::json;
using pilot::TargetOps;

namespace {

// In the order of the list: what would surprise comes first.
enum class Outcome { WillFail, MayFail, Hole, Good };
constexpr const char* kOutcomes[] = {"will-fail", "may-fail", "not-here", "good"};

struct Line {
  std::string overload, here, why;
  TargetOps::State there;
  Outcome outcome = Outcome::Good;
};

std::string reasons(const std::vector<pilot::TargetFault>& faults) {
  std::string text;
  for (const pilot::TargetFault& fault : faults) text += (text.empty() ? "" : "; ") + describe(fault);
  return text;
}

Line line_of(const TargetOps& target, const std::string& overload, bool row) {
  const auto hole = target.holes().find(overload);
  const bool missing = !row && hole != target.holes().end();
  Line line{overload, row ? "native" : missing ? "missing" : "core", "", target.state(overload)};
  const auto faults = target.faults(overload);
  const bool alone = std::any_of(faults.begin(), faults.end(), [](const auto& fault) { return fault.alone; });
  line.why = reasons(faults);
  if (line.there == TargetOps::State::Absent) {
    line.outcome = Outcome::WillFail;
    line.why = "absent there";
  } else if (missing) {
    line.outcome = Outcome::Hole;
    line.why = hole->second;
  } else if (!faults.empty()) {
    line.outcome = alone ? Outcome::WillFail : Outcome::MayFail;
  }
  return line;
}

// Every row of ours and every overload that the release registers.
std::vector<Line> lines_of(const TargetOps& target, const std::string& name) {
  std::map<std::string, bool> overloads;  // has a row
  for (const std::string& overload : target.registered()) overloads.emplace(overload, false);
  for (const ops::Row& row : ops::rows()) {
    for (std::string_view overload : row.overloads) overloads[std::string(overload)] = true;
  }
  std::vector<Line> lines;
  for (const auto& [overload, row] : overloads) {
    const bool named = name.empty() || overload == name || overload.substr(0, overload.find('.')) == name;
    if (named) lines.push_back(line_of(target, overload, row));
  }
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    return std::tie(a.outcome, a.overload) < std::tie(b.outcome, b.overload);
  });
  return lines;
}

std::string heading(const TargetOps& target, Outcome outcome) {
  switch (outcome) {
    case Outcome::WillFail:
      return "will fail on " + target.title() + ", although it runs here";
    case Outcome::MayFail:
      return "may fail on " + target.title() + ": part of what it got wrong";
    case Outcome::Hole:
      return "registered by " + target.title() + ", and not here";
    case Outcome::Good:
      return "in " + target.title() + " (registered is no proof of every dtype) and here";
  }
  return "";
}

void print_text(const TargetOps& target, const std::vector<Line>& lines, bool markdown) {
  std::map<Outcome, size_t> counts;
  for (const Line& line : lines) ++counts[line.outcome];
  std::cout << (markdown ? "# The ops beside " + target.title() + "\n\n" : "") << target.name() << ", list of "
            << target.date() << ", read with torch " << target.torch() << "\n";
  const Line* before = nullptr;
  for (const Line& line : lines) {
    if (!before || before->outcome != line.outcome) {
      std::cout << "\n"
                << (markdown ? "## " : "") << heading(target, line.outcome) << ": " << counts[line.outcome] << "\n";
      if (markdown) std::cout << "\n| overload | here | there | why |\n|---|---|---|---|\n";
    }
    before = &line;
    if (markdown) {
      std::cout << "| `aten::" << line.overload << "` | " << line.here << " | " << state_name(line.there) << " | "
                << line.why << " |\n";
    } else {
      std::cout << "  aten::" << line.overload << "  here " << line.here << ", there " << state_name(line.there)
                << (line.why.empty() ? "" : "  (" + line.why + ")") << "\n";
    }
  }
}

}  // namespace

int target_command(const std::string& target_name, const std::string& name, bool markdown, bool as_json) {
  const TargetOps* target = pilot::find_target_ops(target_name);
  if (!target) {
    throw pilot::Error("[ops --target] no list of `" + target_name + "`; known: " + pilot::known_targets() +
                       ". scripts/target_profile.py makes one.");
  }
  const std::vector<Line> lines = lines_of(*target, name);
  if (as_json) {
    json rows = json::array();
    for (const Line& line : lines) {
      rows.push_back({{"overload", line.overload},
                      {"outcome", kOutcomes[static_cast<size_t>(line.outcome)]},
                      {"here", line.here},
                      {"target", state_name(line.there)},
                      {"why", line.why}});
    }
    std::cout
        << json{{"target", target->name()}, {"date", target->date()}, {"torch", target->torch()}, {"ops", rows}}.dump(2)
        << "\n";
  } else if (!lines.empty()) {
    print_text(*target, lines, markdown);
  }
  if (lines.empty())
    std::cerr << "tpupilot: [ops] neither the backend nor " << target->name() << " has `" << name << "`.\n";
  return lines.empty() ? 1 : 0;
}

}  // namespace tpupilot::cli
