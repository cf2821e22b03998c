#include "numerics/judge.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

namespace {

struct Spread {
  double rmse = 0, p999 = 0;
};

// Of the errors at places that both sides have finite.
Spread spread(std::vector<double> errors) {
  if (errors.empty()) return {};
  double squares = 0;
  for (double error : errors) squares += error * error;
  const size_t at =
      std::min(errors.size() - 1,
               static_cast<size_t>(std::ceil(0.999 * static_cast<double>(errors.size()))) - (errors.size() > 1));
  std::nth_element(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(at), errors.end());
  return {std::sqrt(squares / static_cast<double>(errors.size())), errors[at]};
}

json index_of(size_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = static_cast<int64_t>(flat % static_cast<size_t>(shape[dim]));
    flat /= static_cast<size_t>(shape[dim]);
  }
  return index;
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  double product = 0, left = 0, right = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
    product += a[i] * b[i];
    left += a[i] * a[i];
    right += b[i] * b[i];
  }
  if (left == 0 && right == 0) return 1;
  return left == 0 || right == 0 ? 0 : product / std::sqrt(left * right);
}

void add_ulps(json& row, const Tensor& reference, const Tensor& candidate) {
  const auto left = reference.ordered(), right = candidate.ordered();
  std::vector<int64_t> distance(left.size());
  for (size_t i = 0; i < left.size(); ++i) distance[i] = std::abs(left[i] - right[i]);
  std::sort(distance.begin(), distance.end());
  const auto quantile = [&](double q) {
    return distance.empty() ? 0 : distance[static_cast<size_t>(q * static_cast<double>(distance.size() - 1))];
  };
  row["ulp_p50"] = quantile(0.5);
  row["ulp_p99"] = quantile(0.99);
  row["ulp_max"] = quantile(1);
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

Judgement judge_tensor(const Tensor& reference, const Tensor& candidate, const Tensor* exact, const Rule& rule) {
  const auto r = reference.values(), c = candidate.values();
  const auto e = exact ? exact->values() : std::vector<double>();
  Judgement result;
  size_t mismatches = 0, worst = 0;
  double max_abs = 0, max_rel = 0;
  bool one_sided = false;
  std::vector<double> reference_errors, candidate_errors;
  for (size_t i = 0; i < r.size(); ++i) {
    if (!std::isfinite(r[i]) || !std::isfinite(c[i])) {
      if (same(r[i], c[i])) {
        result.nonfinite = true;
      } else {
        if (!one_sided) worst = i;
        one_sided = true;
        ++mismatches;
      }
      continue;
    }
    const double difference = std::abs(c[i] - r[i]), allowed = rule.atol + rule.rtol * std::abs(r[i]);
    const double severity = difference == 0 ? 0
                            : allowed == 0  ? std::numeric_limits<double>::infinity()
                                            : difference / allowed;
    mismatches += severity > 1;
    if (severity > result.severity && !one_sided) worst = i;
    result.severity = std::max(result.severity, severity);
    max_abs = std::max(max_abs, difference);
    if (r[i] != 0) max_rel = std::max(max_rel, difference / std::abs(r[i]));
    if (exact && std::isfinite(e[i])) {
      reference_errors.push_back(std::abs(r[i] - e[i]));
      candidate_errors.push_back(std::abs(c[i] - e[i]));
    }
  }
  if (one_sided) result.severity = std::numeric_limits<double>::infinity();
  const Spread of_reference = spread(reference_errors), of_candidate = spread(candidate_errors);
  const bool judged = exact && !one_sided && !candidate_errors.empty() &&
                      of_candidate.rmse <= rule.factor * of_reference.rmse &&
                      of_candidate.p999 <= rule.factor * of_reference.p999;
  result.passed_by = mismatches == 0 ? "tolerance" : judged ? "judge" : "";
  result.passed = !result.passed_by.empty();
  json& row = result.row;
  row = {{"dtype", reference.dtype},
         {"rmse_reference", exact ? json(of_reference.rmse) : json()},
         {"rmse_candidate", exact ? json(of_candidate.rmse) : json()},
         {"p999_reference", exact ? json(of_reference.p999) : json()},
         {"p999_candidate", exact ? json(of_candidate.p999) : json()},
         {"max_abs", max_abs},
         {"max_rel", max_rel},
         {"cosine", cosine(r, c)},
         {"mismatches", r.empty() ? 0.0 : static_cast<double>(mismatches) / static_cast<double>(r.size())},
         {"worst_index", r.empty() ? json::array() : index_of(worst, reference.shape)},
         {"worst_reference", r.empty() ? json() : json(r[worst])},
         {"worst_candidate", r.empty() ? json() : json(c[worst])},
         {"passed_by", result.passed ? json(result.passed_by) : json()},
         {"verdict", result.passed ? "pass" : "stop"}};
  add_ulps(row, reference, candidate);
  return result;
}

}  // namespace tpupilot::numerics
