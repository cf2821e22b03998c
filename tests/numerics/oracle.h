// The statistics of checks.md as plainly as they can be written: whole tensors in memory, sorted. What the judge says
// must be this, whatever the size, the chunks and the threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "numerics/judge.h"

namespace tpupilot::numerics {

struct Expected {
  double max_abs = 0, max_rel = 0, severity = 0, cosine = 0, mismatches = 0;
  double rmse_reference = 0, rmse_candidate = 0, p999_reference = 0, p999_candidate = 0;
  uint64_t ulp_p50 = 0, ulp_p99 = 0, ulp_max = 0;
  size_t worst = 0;
  bool nonfinite = false, passed = false;
};

namespace oracle {

struct Spread {
  double rmse = 0, p999 = 0;
};

inline Spread spread(std::vector<double> errors) {
  if (errors.empty()) return {};
  long double squares = 0;
  for (double error : errors) squares += static_cast<long double>(error) * error;
  std::sort(errors.begin(), errors.end());
  const auto up = static_cast<size_t>(std::ceil(0.999 * static_cast<double>(errors.size())));
  const size_t at = std::min(errors.size() - 1, up - (errors.size() > 1 ? 1 : 0));
  return {std::sqrt(static_cast<double>(squares / static_cast<long double>(errors.size()))), errors[at]};
}

inline bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

inline void ulps(const Tensor& reference, const Tensor& candidate, Expected& expected) {
  const auto left = reference.ordered(), right = candidate.ordered();
  std::vector<uint64_t> distances;
  for (size_t i = 0; i < left.size(); ++i) {
    const auto a = static_cast<uint64_t>(std::max(left[i], right[i])),
               b = static_cast<uint64_t>(std::min(left[i], right[i]));
    distances.push_back(a - b);
  }
  if (distances.empty()) return;
  std::sort(distances.begin(), distances.end());
  const auto at = [&](double q) {
    return distances[static_cast<size_t>(q * static_cast<double>(distances.size() - 1))];
  };
  expected.ulp_p50 = at(0.5);
  expected.ulp_p99 = at(0.99);
  expected.ulp_max = distances.back();
}

}  // namespace oracle

inline Expected expect(const Tensor& reference, const Tensor& candidate, const Tensor* exact, const Rule& rule) {
  const auto r = reference.values(), c = candidate.values(), e = exact ? exact->values() : std::vector<double>();
  Expected expected;
  size_t outside = 0;
  bool one_sided = false;
  long double product = 0, left = 0, right = 0;
  std::vector<double> of_reference, of_candidate;
  for (size_t i = 0; i < r.size(); ++i) {
    if (!std::isfinite(r[i]) || !std::isfinite(c[i])) {
      if (oracle::same(r[i], c[i])) {
        expected.nonfinite = true;
        continue;
      }
      if (!one_sided) expected.worst = i;
      one_sided = true;
      ++outside;
      continue;
    }
    product += static_cast<long double>(r[i]) * c[i];
    left += static_cast<long double>(r[i]) * r[i];
    right += static_cast<long double>(c[i]) * c[i];
    const double difference = std::abs(c[i] - r[i]), allowed = rule.atol + rule.rtol * std::abs(r[i]);
    const double severity = difference == 0 ? 0
                            : allowed == 0  ? std::numeric_limits<double>::infinity()
                                            : difference / allowed;
    outside += severity > 1;
    if (severity > expected.severity && !one_sided) expected.worst = i;
    expected.severity = std::max(expected.severity, severity);
    expected.max_abs = std::max(expected.max_abs, difference);
    if (r[i] != 0) expected.max_rel = std::max(expected.max_rel, difference / std::abs(r[i]));
    if (exact && std::isfinite(e[i])) {
      of_reference.push_back(std::abs(r[i] - e[i]));
      of_candidate.push_back(std::abs(c[i] - e[i]));
    }
  }
  if (one_sided) expected.severity = std::numeric_limits<double>::infinity();
  const oracle::Spread reference_spread = oracle::spread(of_reference), candidate_spread = oracle::spread(of_candidate);
  expected.rmse_reference = reference_spread.rmse;
  expected.rmse_candidate = candidate_spread.rmse;
  expected.p999_reference = reference_spread.p999;
  expected.p999_candidate = candidate_spread.p999;
  expected.cosine = left == 0 && right == 0   ? 1
                    : left == 0 || right == 0 ? 0
                                              : static_cast<double>(product / std::sqrt(left * right));
  expected.mismatches = r.empty() ? 0 : static_cast<double>(outside) / static_cast<double>(r.size());
  expected.passed = outside == 0 || (exact && !one_sided && !of_reference.empty() &&
                                     expected.rmse_candidate <= rule.factor * expected.rmse_reference &&
                                     expected.p999_candidate <= rule.factor * expected.p999_reference);
  oracle::ulps(reference, candidate, expected);
  return expected;
}

}  // namespace tpupilot::numerics
