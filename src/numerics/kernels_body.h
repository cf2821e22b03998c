// Read by kernels.cpp, several times: no include guard, no includes. Vectors are the compiler's own, so that one text
// serves every instruction set: an operation that the processor lacks is split into smaller ones.

using Doubles = double __attribute__((vector_size(32)));
using Mask = int64_t __attribute__((vector_size(32)));
using Floats = float __attribute__((vector_size(32)));
using HalfFloats = float __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(32)));
using SignedWords = int32_t __attribute__((vector_size(32)));

template <typename T>
static inline T at(const char* bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
  return value;
}

static inline float float_of_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const uint32_t normal = (exponent + (exponent == 31 ? 224 : 112)) << 23 | mantissa << 13;
  const auto small = std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-24f);
  return std::bit_cast<float>(sign | (exponent == 0 ? small : normal));
}

template <typename T>
static inline void widen_as(const char* bytes, size_t count, double* values) {
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<double>(at<T>(bytes, i));
}

static void widen(Dtype dtype, const char* bytes, size_t count, double* values) {
  switch (dtype) {
    case Dtype::Float64:
      return widen_as<double>(bytes, count, values);
    case Dtype::Float32:
      return widen_as<float>(bytes, count, values);
    case Dtype::Float16:
      for (size_t i = 0; i < count; ++i) values[i] = float_of_half(at<uint16_t>(bytes, i));
      return;
    case Dtype::BFloat16:
      for (size_t i = 0; i < count; ++i)
        values[i] = std::bit_cast<float>(static_cast<uint32_t>(at<uint16_t>(bytes, i)) << 16);
      return;
    case Dtype::Int64:
      return widen_as<int64_t>(bytes, count, values);
    case Dtype::Int32:
      return widen_as<int32_t>(bytes, count, values);
    case Dtype::Int16:
      return widen_as<int16_t>(bytes, count, values);
    case Dtype::Int8:
      return widen_as<int8_t>(bytes, count, values);
    case Dtype::UInt8:
    case Dtype::Bool:
      return widen_as<uint8_t>(bytes, count, values);
  }
}

// Sign and magnitude to two's complement: -0 and +0 are both 0.
template <typename Signed>
static inline Signed in_order(Signed bits) {
  const auto sign = static_cast<Signed>(bits >> (sizeof(Signed) * 8 - 1));
  const auto magnitude = static_cast<Signed>(bits & std::numeric_limits<Signed>::max());
  return static_cast<Signed>((magnitude ^ sign) - sign);
}

template <typename Signed, bool is_float, typename Out>
static inline void order_as(const char* bytes, size_t count, Out* ordered) {
  for (size_t i = 0; i < count; ++i) {
    const Signed value = at<Signed>(bytes, i);
    ordered[i] = static_cast<Out>(is_float ? in_order(value) : value);  // NOLINT(bugprone-signed-char-misuse): a number
  }
}

// `Out` is wide enough for the dtype.
template <typename Out>
static inline void order_into(Dtype dtype, const char* bytes, size_t count, Out* ordered) {
  switch (dtype) {
    case Dtype::Float64:
      return order_as<int64_t, true>(bytes, count, ordered);
    case Dtype::Float32:
      return order_as<int32_t, true>(bytes, count, ordered);
    case Dtype::Float16:
    case Dtype::BFloat16:
      return order_as<int16_t, true>(bytes, count, ordered);
    case Dtype::Int64:
      return order_as<int64_t, false>(bytes, count, ordered);
    case Dtype::Int32:
      return order_as<int32_t, false>(bytes, count, ordered);
    case Dtype::Int16:
      return order_as<int16_t, false>(bytes, count, ordered);
    case Dtype::Int8:
      return order_as<int8_t, false>(bytes, count, ordered);
    case Dtype::UInt8:
    case Dtype::Bool:
      for (size_t i = 0; i < count; ++i) ordered[i] = at<uint8_t>(bytes, i);
      return;
  }
}

static void order(Dtype dtype, const char* bytes, size_t count, int64_t* ordered) {
  order_into(dtype, bytes, count, ordered);
}

template <typename Vector>
static inline void load(Vector& vector, const void* from) {
  std::memcpy(&vector, from, sizeof vector);
}

static inline bool any(const Mask& mask) {
#ifdef TPUPILOT_AVX2
  return _mm256_movemask_pd(reinterpret_cast<Doubles>(mask)) != 0;
#else
  return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
#endif
}

static inline double sum_of(const Doubles& lanes) { return lanes[0] + lanes[1] + (lanes[2] + lanes[3]); }

static inline Doubles absolute(const Doubles& values) {
  const Mask magnitude = Mask{} + std::numeric_limits<int64_t>::max();
  return reinterpret_cast<Doubles>(reinterpret_cast<Mask>(values) & magnitude);
}

// a x b + c. Only where the product of two f32 is exact in f64, so that fusing changes no bit, or for a bound that has
// room for rounding.
static inline Doubles multiply_add(const Doubles& a, const Doubles& b, const Doubles& c) {
#ifdef TPUPILOT_AVX2
  return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}

template <typename T>
static inline void add_product(Doubles& sum, const Doubles& a, const Doubles& b) {
  sum = sizeof(T) == sizeof(float) ? multiply_add(a, b, sum) : sum + a * b;
}

static inline double largest_of(const Doubles& lanes, double largest) {
  for (size_t lane = 0; lane < kLanes; ++lane) largest = lanes[lane] > largest ? lanes[lane] : largest;
  return largest;
}

// Elements i to i + 3 in f64, of `T` (float or double) in memory.
template <typename T>
static inline Doubles four(const char* bytes, size_t i) {
  if constexpr (sizeof(T) == sizeof(double)) {
    Doubles values;
    load(values, bytes + i * sizeof(T));
    return values;
  } else {
    HalfFloats values;
    load(values, bytes + i * sizeof(T));
#ifdef TPUPILOT_AVX2
    return _mm256_cvtps_pd(values);  // g++ 12 makes __builtin_convertvector of it by way of memory
#else
    return __builtin_convertvector(values, Doubles);
#endif
  }
}

// The exact maxima of a block that may hold an element above what is known, and its mismatches if nobody else counts
// them. Divides, therefore not always.
template <typename T>
static void scan(const RawBlock& block, size_t first, bool count, Tally& tally) {
  Doubles severities = {}, relatives = {};
  Mask mismatches = {};
  for (size_t i = 0; i < block.count; i += kLanes) {
    const Doubles r = four<T>(block.reference, i), c = four<T>(block.candidate, i);
    const Doubles difference = absolute(c - r), size = absolute(r), allowed = tally.atol + tally.rtol * size;
    const Doubles severity = difference / allowed, relative = difference / size;
    mismatches -= difference > allowed;
    severities = severity > severities ? severity : severities;  // 0 / 0 is no larger
    relatives = ((relative > relatives) & (size > 0.0)) ? relative : relatives;
  }
  if (count) tally.mismatches += static_cast<uint64_t>(mismatches[0] + mismatches[1] + mismatches[2] + mismatches[3]);
  tally.max_rel = largest_of(relatives, tally.max_rel);
  const double severity = largest_of(severities, tally.severity);
  if (!(severity > tally.severity)) return;
  tally.severity = severity;
  for (size_t i = 0; i < block.count; i += kLanes) {
    const Doubles r = four<T>(block.reference, i), c = four<T>(block.candidate, i);
    const Doubles here = absolute(c - r) / (tally.atol + tally.rtol * absolute(r));
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (here[lane] != severity) continue;
      tally.worst = first + i + lane;
      return;
    }
  }
}

// An infinite maximum of another chunk must not hide one here that comes earlier in the tensor: infinity x 0 is NaN.
static inline double finite_or_largest(double value) {
  constexpr double largest = std::numeric_limits<double>::max();
  return value > largest ? largest : value;
}

// A little less than a maximum so far, so that rounding cannot hide an element that equals or exceeds it.
static inline double just_below(double a, double b) { return (a > b ? a : b) * (1 - 0x1p-50); }

// `counts`: elements may be outside the tolerance without being worse than what is known; else whoever is outside is
// also worse, and the scan that follows counts it.
template <typename T, bool has_exact, bool counts>
static bool add_block(const RawBlock& block, size_t first, Tally& tally) {
  const double severity = just_below(tally.severity, finite_or_largest(tally.known_severity));
  const double relative = just_below(tally.max_rel, tally.known_relative);
  const double rtol = counts ? tally.rtol : severity * tally.rtol, atol = counts ? tally.atol : severity * tally.atol;
  const Doubles rtols = Doubles{} + rtol, atols = Doubles{} + atol;
  const double reference_threshold = tally.reference_threshold, candidate_threshold = tally.candidate_threshold;
  Doubles product, left, right, reference_squares, candidate_squares, max_abs = {};
  load(product, tally.product.data());
  load(left, tally.reference_squares.data());
  load(right, tally.candidate_squares.data());
  load(reference_squares, tally.reference_error_squares.data());
  load(candidate_squares, tally.candidate_error_squares.data());
  Mask mismatches = {}, larger = {};
  double* const reference_tail = tally.reference_tail;
  double* const candidate_tail = tally.candidate_tail;
  size_t reference_kept = tally.reference_kept, candidate_kept = tally.candidate_kept;
  for (size_t i = 0; i < block.count; i += kLanes) {
    const Doubles r = four<T>(block.reference, i), c = four<T>(block.candidate, i);
    const Doubles difference = absolute(c - r), size = absolute(r);
    Doubles bound;
    if constexpr (counts) {
      const Doubles allowed = atol + rtol * size;
      mismatches -= difference > allowed;
      bound = severity * allowed;
    } else {
      bound = multiply_add(rtols, size, atols);
    }
    max_abs = difference > max_abs ? difference : max_abs;
    if constexpr (sizeof(T) == sizeof(double)) {  // where a bound may be so small that it is rounded up
      larger |= ((difference >= bound) | ((difference >= relative * size) & (size > 0.0))) & (difference > 0.0);
    } else {
      larger |= (difference > bound) | ((difference > relative * size) & (size > 0.0));
    }
    add_product<T>(product, r, c);
    add_product<T>(left, r, r);
    add_product<T>(right, c, c);
    if constexpr (has_exact) {
      const Doubles e = four<double>(block.exact, i);
      const Doubles of_reference = absolute(r - e), of_candidate = absolute(c - e);
      reference_squares += of_reference * of_reference;
      candidate_squares += of_candidate * of_candidate;
      if (any((of_reference > reference_threshold) | (of_candidate > candidate_threshold))) {
        for (size_t lane = 0; lane < kLanes; ++lane) {
          reference_tail[reference_kept] = of_reference[lane];
          reference_kept += of_reference[lane] > reference_threshold;
          candidate_tail[candidate_kept] = of_candidate[lane];
          candidate_kept += of_candidate[lane] > candidate_threshold;
        }
      }
    }
  }
  // A NaN or Inf anywhere has reached one of these sums.
  const Doubles finite = (left - left) + (right - right) + (product - product) +
                         (reference_squares - reference_squares) + (candidate_squares - candidate_squares);
  if (sum_of(finite) != 0) return false;
  std::memcpy(tally.product.data(), &product, sizeof product);
  std::memcpy(tally.reference_squares.data(), &left, sizeof left);
  std::memcpy(tally.candidate_squares.data(), &right, sizeof right);
  std::memcpy(tally.reference_error_squares.data(), &reference_squares, sizeof reference_squares);
  std::memcpy(tally.candidate_error_squares.data(), &candidate_squares, sizeof candidate_squares);
  for (size_t lane = 0; lane < kLanes; ++lane) {
    tally.mismatches += static_cast<uint64_t>(mismatches[lane]);
    if (max_abs[lane] > tally.max_abs) tally.max_abs = max_abs[lane];
  }
  if (has_exact) tally.errors += block.count;
  tally.reference_kept = reference_kept;
  tally.candidate_kept = candidate_kept;
  if (any(larger)) scan<T>(block, first, !counts, tally);
  return true;
}

template <typename T>
static bool add_of(const RawBlock& block, size_t first, Tally& tally) {
  const bool counts = tally.severity > 1 || tally.known_severity > 1;
  if (counts)
    return block.exact ? add_block<T, true, true>(block, first, tally) : add_block<T, false, true>(block, first, tally);
  return block.exact ? add_block<T, true, false>(block, first, tally) : add_block<T, false, false>(block, first, tally);
}

static bool add_finite(const RawBlock& block, size_t first, Tally& tally) {
  return block.dtype == Dtype::Float32 ? add_of<float>(block, first, tally) : add_of<double>(block, first, tally);
}

static inline uint64_t apart(int64_t a, int64_t b) {
  return a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
               : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
}

static void distances(Dtype dtype, const char* reference, const char* candidate, size_t count, uint64_t* found) {
  int64_t left[kBlock], right[kBlock];
  order_into(dtype, reference, count, left);
  order_into(dtype, candidate, count, right);
  for (size_t i = 0; i < count; ++i) found[i] = apart(left[i], right[i]);
}

static void add_one_by_one(Dtype dtype, const char* reference, const char* candidate, size_t count, UlpCounts& counts) {
  uint64_t found[kBlock];
  distances(dtype, reference, candidate, count, found);
  uint64_t largest = counts.largest;
  for (size_t i = 0; i < count; ++i) {
    largest = found[i] > largest ? found[i] : largest;
    ++counts.copies[i % UlpCounts::kCopies][ulp_bin(found[i])];
  }
  counts.largest = largest;
}

static inline SignedWords eight_in_order(const char* floats) {
  SignedWords bits;
  load(bits, floats);
  const SignedWords sign = bits >> 31;
  return ((bits & std::numeric_limits<int32_t>::max()) ^ sign) - sign;
}

// ulp_bin of eight: the leading bits of an integer are the exponent and mantissa of it as a float. Halved to be no
// negative number, and with a gap of zeros below the leading 8 bits, so that no rounding reaches the 7 that matter.
static inline Words bins_of(const Words& distance) {
  const Words half = distance >> 1, leading = half & ~(half >> 8);
  const Floats rounded = __builtin_convertvector(reinterpret_cast<SignedWords>(leading), Floats);
  const Words coarse = (reinterpret_cast<Words>(rounded) >> 17) - (0x44800000U >> 17) + static_cast<uint32_t>(kExact);
  return distance < static_cast<uint32_t>(kExact) ? distance : coarse;
}

// Counts the distances between the lanes of `a` and `b`; the largest so far of each lane.
static inline void count_eight(const SignedWords& a, const SignedWords& b, Words& largest, UlpCounts& counts) {
  const Words distance = reinterpret_cast<Words>(a > b ? a : b) - reinterpret_cast<Words>(a > b ? b : a);
  largest = distance > largest ? distance : largest;
  const Mask above = reinterpret_cast<Mask>(distance >= static_cast<uint32_t>(UlpCounts::kPaired));
  if (!any(above | above << 32)) {
    // The usual case, of small distances: two of them are one place of a square table.
    uint64_t pairs[4];
    Mask both = reinterpret_cast<Mask>(distance);
    both |= both >> (32 - 4);
    std::memcpy(pairs, &both, sizeof pairs);
    for (size_t i = 0; i < 4; ++i) ++counts.pairs[i][pairs[i] & 0xff];
    return;
  }
  uint32_t bins[8];
  const Words bin = bins_of(distance);
  std::memcpy(bins, &bin, sizeof bins);
  for (size_t i = 0; i < 8; ++i) ++counts.copies[i][bins[i]];
}

static inline Words count_floats(const char* reference, const char* candidate, size_t count, UlpCounts& counts) {
  Words largest = {};
  for (size_t i = 0; i < count; i += 8)
    count_eight(eight_in_order(reference + i * 4), eight_in_order(candidate + i * 4), largest, counts);
  return largest;
}

static inline Words count_any(Dtype dtype, const char* reference, const char* candidate, size_t count,
                              UlpCounts& counts) {
  int32_t left[kBlock], right[kBlock];
  order_into(dtype, reference, count, left);
  order_into(dtype, candidate, count, right);
  Words largest = {};
  for (size_t i = 0; i < count; i += 8) {
    SignedWords a, b;
    load(a, left + i);
    load(b, right + i);
    count_eight(a, b, largest, counts);
  }
  return largest;
}

static void add_distances(Dtype dtype, const char* reference, const char* candidate, size_t count, UlpCounts& counts) {
  const size_t size = size_of(dtype);
  const size_t whole = size == 8 ? 0 : count - count % 8;
  const Words maxima = dtype == Dtype::Float32 ? count_floats(reference, candidate, whole, counts)
                                               : count_any(dtype, reference, candidate, whole, counts);
  for (size_t lane = 0; lane < 8; ++lane)
    counts.largest = maxima[lane] > counts.largest ? maxima[lane] : counts.largest;
  add_one_by_one(dtype, reference + whole * size, candidate + whole * size, count - whole, counts);
}
