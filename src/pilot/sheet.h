// Verdicts to one sheet.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pilot/check.h"

namespace tpupilot::pilot {

class Context;

struct SheetInput {
  const Context& context;
  std::vector<int64_t> asked;  // gates
  int last_judged;             // the gate at which the run ended: later ones did not run
  std::string divergence;      // isolate/ if it was written
};

// A gate passes if none of its must checks is `stop` or `not-judged`. Verdict of a gate without implemented checks:
// not-judged (2 without a distributed mode: not-applicable).
Verdict gate_verdict(int gate, const Context& context);

nlohmann::json build_sheet(const SheetInput& input);

}  // namespace tpupilot::pilot
