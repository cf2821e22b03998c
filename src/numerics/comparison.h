// One pair of tensors, compared chunk by chunk: any chunk by any thread in any order, with the same result.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>
#include <vector>

#include "numerics/judge.h"
#include "numerics/kernels.h"
#include "numerics/order_statistic.h"

namespace tpupilot::numerics {

constexpr size_t kChunk = 16384;  // elements; three sides of it fit a processor's second cache

// A block of every side in f64. `exact` may be null.
struct Block {
  const double *reference, *candidate, *exact;
  size_t count;
};

// Room for one.
struct Values {
  std::array<double, kBlock> reference, candidate, exact;
};

// What one thread needs to work on chunks; reused from one to the next.
struct Scratch {
  UlpCounts ulps;
  Tally tally;
  bool nonfinite = false;       // on both sides, somewhere in the chunk
  size_t one_sided = SIZE_MAX;  // the first place in the chunk where only one side is not finite
  Values values;
  std::array<uint64_t, kBlock> distances;
  std::array<double, kChunk + kLanes> reference_tail, candidate_tail;
};

// Makes sure of bytes that are looked at out of turn (they lie in a file), and lets go of them. Either may be null.
struct Pages {
  std::function<void(std::string_view)> load, release;
};

class Comparison {
 public:
  Comparison(const Pair& pair, Pages pages);  // `pair` outlives this; Error if its sides are not alike

  size_t elements() const { return count_; }
  size_t chunks() const { return (count_ + kChunk - 1) / kChunk; }
  void prepare();  // before all work
  // The work of the pass on one chunk. Thread-safe; each chunk once a pass.
  void work(size_t chunk, Scratch& scratch);
  // After every chunk was worked on: true if another pass over all chunks is needed.
  bool next_pass();
  Judgement judgement() const;

 private:
  enum Statistic { kReferenceError, kCandidateError, kUlpMedian, kUlp99, kStatistics };
  struct Tail {
    double threshold = -1;       // errors above it are kept; -1 keeps all
    std::vector<double> values;  // no more than its capacity
    bool overflowed = false;
  };

  void sample();
  void begin(Scratch& scratch);
  void compare(size_t chunk, Scratch& scratch);
  bool add_finite(RawBlock block, size_t first, Scratch& scratch) const;
  void add_any(const Block& block, size_t begin, size_t first, Scratch& scratch) const;
  double difference(size_t at, double reference, double candidate) const;
  void absorb(size_t chunk, Scratch& scratch);
  void refine(size_t chunk, Scratch& scratch);
  Block values(size_t begin, size_t count, Values& into) const;
  RawBlock raw(size_t begin, size_t count, Values& into) const;
  void prefetch(size_t begin) const;
  OrderStatistic error_quantile(Tail& tail) const;
  OrderStatistic ulp_quantile(double q) const;

  const Pair& pair_;
  const Pages pages_;
  const DtypeFormat& format_;
  const DtypeFormat* const exact_format_;
  const size_t count_;
  bool first_pass_ = true;

  mutable std::mutex mutex_;  // of all below
  struct Sums {
    double product, reference_squares, candidate_squares, reference_error_squares, candidate_error_squares;
  };
  std::vector<Sums> sums_;  // by chunk: added up in that order, whoever came first
  uint64_t errors_ = 0, mismatches_ = 0;
  bool nonfinite_ = false;
  double max_abs_ = 0, max_rel_ = 0, severity_ = 0;
  size_t worst_ = 0, one_sided_ = SIZE_MAX;  // SIZE_MAX: nowhere is one side alone not finite
  Tail reference_tail_, candidate_tail_;
  std::vector<uint64_t> ulp_counts_;
  uint64_t ulp_largest_ = 0;
  std::array<OrderStatistic, kStatistics> statistics_;
  std::array<OrderStatistic::Pass, kStatistics> passes_;
};

}  // namespace tpupilot::numerics
