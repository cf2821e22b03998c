// The inner loops of the judge, compiled once for the build's own flags and once for AVX2; the processor decides at run
// time. Both give the same bits: sums have four lanes with a fixed order, and a product is never fused with a sum.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "numerics/dtype.h"

namespace tpupilot::numerics {

constexpr size_t kBlock = 512;   // elements of one call
constexpr size_t kLanes = 4;     // element i of a block adds to lane i mod 4
constexpr size_t kExact = 2048;  // distances below it are counted one by one, larger ones by their leading 7 bits
constexpr size_t kUlpBins = kExact + size_t{64 - 11} * 64;

// The bin of a distance in ULP.
inline size_t ulp_bin(uint64_t distance) {
  if (distance < kExact) return distance;
  const int leading = 63 - std::countl_zero(distance);
  return kExact + static_cast<size_t>(leading - 11) * 64 + (distance >> (leading - 6) & 63);
}

// Counts of distances, in several copies, so that equal neighbours do not wait for each other.
struct UlpCounts {
  static constexpr size_t kCopies = 8, kPaired = 16;
  std::array<std::array<uint32_t, kUlpBins>, kCopies> copies{};
  std::array<std::array<uint32_t, kPaired * kPaired>, 4> pairs{};  // of distances a, b < kPaired at a + kPaired x b
  uint64_t largest = 0;

  void move_to(std::vector<uint64_t>& totals);  // adds all to `totals`, by bin, and starts anew
};

// A block as it lies in memory, aligned or not. `exact` is f64, or null.
struct RawBlock {
  Dtype dtype;  // of reference and candidate
  const char *reference, *candidate, *exact;
  size_t count;
};

using Lanes = std::array<double, kLanes>;

// What the elements of a chunk have added up to, and the largest so far.
struct Tally {
  double rtol = 0, atol = 0;
  Lanes product{}, reference_squares{}, candidate_squares{};   // for the cosine
  Lanes reference_error_squares{}, candidate_error_squares{};  // against the f64 run
  uint64_t errors = 0;                                         // places with all three finite
  uint64_t mismatches = 0;                                     // outside the tolerance
  double max_abs = 0, max_rel = 0, severity = 0;
  size_t worst = 0;                               // the first place of that severity, in the chunk
  double known_severity = 0, known_relative = 0;  // of other chunks: less need not be looked for
  // Errors above the threshold are kept; the caller has room there for all errors and kLanes more.
  double reference_threshold = 0, candidate_threshold = 0;
  double *reference_tail = nullptr, *candidate_tail = nullptr;
  size_t reference_kept = 0, candidate_kept = 0;
};

struct Kernels {
  const char* name;
  void (*widen)(Dtype dtype, const char* bytes, size_t count, double* values);
  // Floats as integers in the order of their values (-0 and +0 are both 0), whole numbers as they are.
  void (*order)(Dtype dtype, const char* bytes, size_t count, int64_t* ordered);
  // Adds a block whose first element is the chunk's element `first`. False, and nothing changed, if a value is not
  // finite, or so large that a sum is not: the caller then does the same one by one. The dtype is Float32 or Float64,
  // `count` a multiple of kLanes.
  bool (*add_finite)(const RawBlock& block, size_t first, Tally& tally);
  void (*add_distances)(Dtype dtype, const char* reference, const char* candidate, size_t count, UlpCounts& counts);
  // Distances in ULP, one by one.
  void (*distances)(Dtype dtype, const char* reference, const char* candidate, size_t count, uint64_t* distances);
};

const Kernels& kernels();           // the best that the processor runs
const Kernels& baseline_kernels();  // of the build's own flags

}  // namespace tpupilot::numerics
