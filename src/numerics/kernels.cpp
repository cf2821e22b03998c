#include "numerics/kernels.h"

#include <algorithm>
#include <cstring>
#include <limits>

#ifdef __x86_64__
#include <immintrin.h>
#endif

// kernels_body.h is read once for each instruction set, into a namespace of its own.
namespace tpupilot::numerics::baseline {
#include "numerics/kernels_body.h"
}  // namespace tpupilot::numerics::baseline

#if defined(__x86_64__) && !defined(__AVX2__)
#define TPUPILOT_AVX2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
namespace tpupilot::numerics::avx2 {
#include "numerics/kernels_body.h"
}  // namespace tpupilot::numerics::avx2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

namespace tpupilot::numerics {

namespace {

constexpr Kernels kBaseline{"baseline",           baseline::widen,         baseline::order,
                            baseline::add_finite, baseline::add_distances, baseline::distances};
#ifdef TPUPILOT_AVX2
constexpr Kernels kAvx2{"avx2", avx2::widen, avx2::order, avx2::add_finite, avx2::add_distances, avx2::distances};
#endif

}  // namespace

void UlpCounts::move_to(std::vector<uint64_t>& totals) {
  const size_t used = ulp_bin(largest) + 1;
  for (auto& copy : copies) {
    for (size_t bin = 0; bin < used; ++bin) totals[bin] += copy[bin];
    std::fill_n(copy.begin(), used, 0);
  }
  std::array<uint32_t, kPaired * kPaired> together{};
  for (auto& copy : pairs) {
    for (size_t i = 0; i < copy.size(); ++i) together[i] += copy[i];
    copy.fill(0);
  }
  for (size_t a = 0; a < kPaired; ++a) {
    for (size_t b = 0; b < kPaired; ++b) totals[a] += together[a + kPaired * b] + together[b + kPaired * a];
  }
  largest = 0;
}

const Kernels& baseline_kernels() { return kBaseline; }

const Kernels& kernels() {
#ifdef TPUPILOT_AVX2
  static const Kernels& best = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? kAvx2 : kBaseline;
  return best;
#else
  return kBaseline;
#endif
}

}  // namespace tpupilot::numerics
