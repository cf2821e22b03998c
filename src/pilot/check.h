// A check: a row of the registry, and the function that turns evidence into a verdict.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tpupilot::pilot {

class Context;

enum class Verdict { Pass, Stop, NotJudged, NotApplicable };

std::string_view verdict_name(Verdict verdict);  // "pass", "stop", "not-judged", "not-applicable"

struct CheckResult {
  Verdict verdict = Verdict::NotJudged;
  nlohmann::json measured = nlohmann::json::object();
  nlohmann::json rule = nlohmann::json::object();
  std::vector<std::string> evidence = {};  // files, relative to the run folder
  std::string why;                         // one sentence
};

// Throws evidence errors when a file that it needs is missing or changed; the caller makes that `not-judged`.
using JudgeFunction = CheckResult (*)(const Context&);

// Gates 0 to 3 are the pilot's; the inventory and the decision stand beside them.
enum class Gate { Environment = 0, OneWorker = 1, Distributed = 2, Compiled = 3, Inventory = 4, Decision = 5 };

struct Check {
  std::string_view id;
  Gate gate;
  bool must;
  std::string_view title;
  std::string_view needs;         // the evidence: tasks of the workers, as side/task
  std::string_view rule;          // the default rule in words
  JudgeFunction judge = nullptr;  // null: not in this release
};

// All checks, in the order of the sheet.
const std::vector<Check>& registry();
const Check& find_check(std::string_view id);  // Error (Usage) with the nearest id

std::string checks_markdown();  // the table of docs/checks.md
nlohmann::json checks_json();   // the same as data

}  // namespace tpupilot::pilot
