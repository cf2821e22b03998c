#include "numerics/judge.h"

#include "numerics/judge_run.h"

namespace tpupilot::numerics {

using nlohmann::json;

Rule rule_for(const json& thresholds, const std::string& dtype) {
  const std::string autocast = thresholds.value("autocast", "");
  const bool is_float = thresholds.at("tolerance").contains(dtype);
  if (!is_float) return {};
  const std::string of = autocast.empty() || dtype == "float64" ? dtype : autocast;
  const json& pair = thresholds.at("tolerance").at(of);
  return {pair.at(0), pair.at(1), thresholds.at("judge_factor").at(of)};
}

Judgement judge_tensor(const Tensor& reference, const Tensor& candidate, const Tensor* exact, const Rule& rule) {
  Pair pair{reference.view(), candidate.view(), std::nullopt, rule};
  if (exact) pair.exact = exact->view();
  return std::move(judge_pairs({pair}, {}).front());
}

}  // namespace tpupilot::numerics
