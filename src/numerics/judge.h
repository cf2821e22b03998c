// One tensor of the candidate against the reference's: tolerance first, then the f64 judge. All arithmetic is in f64.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "numerics/tensor_file.h"

namespace tpupilot::numerics {

struct Rule {
  double rtol = 0, atol = 0;  // |candidate - reference| <= atol + rtol |reference|, every element
  double factor = 2;          // of the judge: error against f64 <= factor x the reference's own
};

// The rule of a dtype (or of the autocast dtype) from the manifest's thresholds; exact for whole numbers.
Rule rule_for(const nlohmann::json& thresholds, const std::string& dtype);

// A fault to try the judge on: the candidate's element i becomes factor x element i + shift (around the end).
struct Fault {
  double factor = 1;
  size_t shift = 0;
};

// What is compared. `exact` is the f64 run's tensor, of the same shape; none = tolerance alone.
struct Pair {
  TensorView reference, candidate;
  std::optional<TensorView> exact = std::nullopt;
  Rule rule;
  std::optional<Fault> fault = std::nullopt;  // both sides are then taken as f64, which holds any fault exactly
};

struct Judgement {
  bool passed = false;
  std::string passed_by;   // "tolerance", "judge" or ""
  bool nonfinite = false;  // NaN or Inf on both sides, at the same places
  double severity = 0;     // how many times the tolerance the worst element is off; infinite for NaN on one side
  nlohmann::json row;      // the numbers of the sheet's "tensors"
};

Judgement judge_tensor(const Tensor& reference, const Tensor& candidate, const Tensor* exact, const Rule& rule);

}  // namespace tpupilot::numerics
