#include "numerics/order_statistic.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace tpupilot::numerics {

OrderStatistic::OrderStatistic(uint64_t low, uint64_t high, uint64_t rank, uint64_t count)
    : low_(low), high_(high), rank_(rank), count_(count) {}

// Bins are as wide as it takes for all of them to cover the range.
unsigned OrderStatistic::shift() const {
  unsigned bits = 0;
  while ((high_ - low_) >> bits >= kBins) ++bits;
  return bits;
}

void OrderStatistic::see(uint64_t key, Pass& pass) const {
  if (key < low_ || key > high_) return;
  if (count_ <= kKept) {
    pass.kept.push_back(key);
    return;
  }
  if (pass.bins.empty()) pass.bins.resize(kBins);
  ++pass.bins[(key - low_) >> shift()];
}

void OrderStatistic::merge(const Pass& from, Pass& into) {
  into.kept.insert(into.kept.end(), from.kept.begin(), from.kept.end());
  if (into.bins.size() < from.bins.size()) into.bins.resize(from.bins.size());
  for (size_t i = 0; i < from.bins.size(); ++i) into.bins[i] += from.bins[i];
}

void OrderStatistic::end(Pass& pass) {
  if (count_ <= kKept) {
    if (rank_ >= pass.kept.size()) throw std::logic_error("[OrderStatistic] fewer keys than were counted");
    const auto at = pass.kept.begin() + static_cast<std::ptrdiff_t>(rank_);
    std::nth_element(pass.kept.begin(), at, pass.kept.end());
    low_ = high_ = *at;
    return;
  }
  const unsigned bits = shift();
  for (size_t i = 0; i < pass.bins.size(); ++i) {
    if (rank_ >= pass.bins[i]) {
      rank_ -= pass.bins[i];
      continue;
    }
    count_ = pass.bins[i];
    low_ += static_cast<uint64_t>(i) << bits;
    high_ = std::min(high_, low_ + ((uint64_t{1} << bits) - 1));
    return;
  }
  throw std::logic_error("[OrderStatistic] fewer keys than were counted");
}

double select(std::vector<double>& values, size_t rank) {
  constexpr size_t bins = 512, many = 1024;
  auto begin = values.begin(), end = values.end();
  if (values.size() > many) {
    const auto [least, greatest] = std::minmax_element(begin, end);
    const uint64_t low = key_of(*least);
    unsigned shift = 0;
    while ((key_of(*greatest) - low) >> shift >= bins) ++shift;
    const auto bin_of = [&](double value) { return (key_of(value) - low) >> shift; };
    std::array<size_t, bins> counts{};
    for (double value : values) ++counts[bin_of(value)];
    size_t bin = 0;
    while (rank >= counts[bin]) rank -= counts[bin++];
    end = std::remove_if(begin, end, [&](double value) { return bin_of(value) != bin; });
  }
  const auto at = begin + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(begin, at, end);
  return *at;
}

}  // namespace tpupilot::numerics
