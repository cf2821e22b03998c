// Recorded tensor sets of the two sides, compared tensor by tensor: tolerance first, then the f64 judge.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pilot/context.h"

namespace tpupilot::pilot {

// One recorded set: what ("forward", "gradients", "state") at one step, as a task of each side left it.
struct SetRequest {
  std::string what;
  int64_t step = 0;
  std::string reference_task = "base", candidate_side = "candidate", candidate_task = "base";
  std::function<bool(const std::string&)> wanted = nullptr;  // by tensor name; null = all
  // Where the float64 run of the same set is; `what` as above if empty.
  std::string exact_task = "float64", exact_what = {};
  bool autocast = true;  // the set was computed under the job's autocast, if it has one
};

struct SetResult {
  nlohmann::json rows = nlohmann::json::array();  // as "tensors" of the sheet
  std::vector<std::string> stopped;               // names, the worst first
  std::vector<std::string> unmatched;             // names that only one side has, or with another dtype or shape
  std::string worst;                              // the worst tensor and its numbers, as a clause; "" if no tensor
  std::vector<std::string> evidence;
  size_t judged_by_f64 = 0;          // passed by the judge, not by the tolerance
  bool reference_nonfinite = false;  // a NaN or Inf on both sides
};

// NotJudgedError if a file is missing or changed.
SetResult compare_sets(const Context& context, const SetRequest& request);

// Names that differ, bit for bit, between the state.safetensors of two checkpoint folders (relative to the run folder);
// a name that only one has counts. Names in `but` are left out.
std::vector<std::string> differing_tensors(const Context& context, const std::string& left, const std::string& right,
                                           const std::vector<std::string>& but);

// Why a checkpoint folder is not whole ("" if it is): files there, tensors_sha256 of state.json holds.
std::string broken_checkpoint(const Context& context, const std::string& folder);

// Faults put into recorded numbers, scaled to their dtype: {"known_good": bool, "faults": [{"fault", "tensor",
// "caught"}], "smallest_seen": {...}}.
nlohmann::json try_the_judge(const Context& context);

}  // namespace tpupilot::pilot
