// The value of one rank among many, found in bounded memory: each pass over the values narrows the range that holds it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tpupilot::numerics {

// Values are keys, compared as unsigned integers. (The bits of a double that is not negative are such a key.)
class OrderStatistic {
 public:
  static constexpr size_t kBins = size_t{1} << 14, kKept = size_t{1} << 18;

  OrderStatistic() = default;  // known to be 0
  // The key number `rank`, counted from 0, of the `count` keys that lie in [low, high].
  OrderStatistic(uint64_t low, uint64_t high, uint64_t rank, uint64_t count);

  bool known() const { return low_ == high_; }
  uint64_t key() const { return low_; }

  // What some of the keys say in one pass; adding two of them is adding their keys, in any order.
  struct Pass {
    std::vector<uint64_t> bins;  // counts, if there are too many to keep
    std::vector<uint64_t> kept;
  };
  void see(uint64_t key, Pass& pass) const;
  static void merge(const Pass& from, Pass& into);
  void end(Pass& pass);  // narrows; every key must have been seen once

 private:
  unsigned shift() const;

  uint64_t low_ = 0, high_ = 0, rank_ = 0, count_ = 0;
};

// The value number `rank` of values that are not negative, of which there is at least one. Faster than std::nth_element
// on many. Their order is lost.
double select(std::vector<double>& values, size_t rank);

inline uint64_t key_of(double value) { return std::bit_cast<uint64_t>(value); }

}  // namespace tpupilot::numerics
