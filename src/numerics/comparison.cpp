#include "numerics/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/error.h"

namespace tpupilot::numerics {

using nlohmann::json;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPercentile = 0.999, kTail = 0.001;
constexpr size_t kLargestTail = size_t{8} << 20;  // errors that are kept at most, a side
constexpr size_t kSmall = 4096;                   // elements of a tensor whose errors are all kept

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

double sum(const Lanes& lanes) { return lanes[0] + lanes[1] + (lanes[2] + lanes[3]); }

// Where the 99.9th percentile of `count` sorted errors is.
uint64_t percentile_index(uint64_t count) {
  return std::min<uint64_t>(
      count - 1, static_cast<uint64_t>(std::ceil(kPercentile * static_cast<double>(count))) - (count > 1 ? 1 : 0));
}

json index_of(size_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = static_cast<int64_t>(flat % static_cast<size_t>(shape[dim]));
    flat /= static_cast<size_t>(shape[dim]);
  }
  return index;
}

double cosine(double product, double left, double right) {
  if (left == 0 && right == 0) return 1;
  return left == 0 || right == 0 ? 0 : product / std::sqrt(left * right);
}

void demand(const TensorView& tensor, size_t count, const DtypeFormat& format) {
  if (tensor.count() == count && tensor.bytes.size() == count * format.size) return;
  throw Error("[judge] a tensor of " + std::to_string(tensor.bytes.size()) + " bytes and " +
              std::to_string(tensor.count()) + " elements of " + tensor.dtype + " cannot be compared with " +
              std::to_string(count) + " elements");
}

}  // namespace

Comparison::Comparison(const Pair& pair, Pages pages)
    : pair_(pair),
      pages_(std::move(pages)),
      format_(format_of(pair.reference.dtype)),
      exact_format_(pair.exact ? &format_of(pair.exact->dtype) : nullptr),
      count_(pair.reference.count()) {
  if (pair.reference.dtype != pair.candidate.dtype)
    throw Error("[judge] " + pair.reference.dtype + " cannot be compared with " + pair.candidate.dtype);
  demand(pair.reference, count_, format_);
  demand(pair.candidate, count_, format_);
  if (pair.exact) demand(*pair.exact, count_, *exact_format_);
}

// Elements [begin, begin + count) of all sides, as f64.
Block Comparison::values(size_t begin, size_t count, Values& into) const {
  const auto widen = [&](const TensorView& tensor, const DtypeFormat& format, size_t from, size_t n, double* to) {
    kernels().widen(format.dtype, tensor.bytes.data() + from * format.size, n, to);
  };
  widen(pair_.reference, format_, begin, count, into.reference.data());
  if (pair_.exact) widen(*pair_.exact, *exact_format_, begin, count, into.exact.data());
  double* const candidate = into.candidate.data();
  if (pair_.fault) {
    const size_t from = (begin + pair_.fault->shift) % count_, before_end = std::min(count, count_ - from);
    widen(pair_.candidate, format_, from, before_end, candidate);
    widen(pair_.candidate, format_, 0, count - before_end, candidate + before_end);
    const double factor = pair_.fault->factor;
    for (size_t i = 0; i < count; ++i) candidate[i] = factor == 0 ? 0 : candidate[i] * factor;
  } else {
    widen(pair_.candidate, format_, begin, count, candidate);
  }
  return {into.reference.data(), candidate, pair_.exact ? into.exact.data() : nullptr, count};
}

// The same as it lies in memory, but for a side that has to be made first.
RawBlock Comparison::raw(size_t begin, size_t count, Values& into) const {
  const auto bytes = [&](const TensorView& tensor, size_t size) { return tensor.bytes.data() + begin * size; };
  RawBlock block{format_.dtype, bytes(pair_.reference, format_.size), bytes(pair_.candidate, format_.size), nullptr,
                 count};
  if (pair_.fault) {
    const Block made = values(begin, count, into);
    block = {Dtype::Float64, reinterpret_cast<const char*>(made.reference),
             reinterpret_cast<const char*>(made.candidate), nullptr, count};
  }
  if (!pair_.exact) return block;
  block.exact = bytes(*pair_.exact, exact_format_->size);
  if (exact_format_->dtype == Dtype::Float64) return block;
  kernels().widen(exact_format_->dtype, block.exact, count, into.exact.data());
  block.exact = reinterpret_cast<const char*>(into.exact.data());
  return block;
}

// The processor's own prefetching ends at each page of 4 KiB.
void Comparison::prefetch(size_t begin) const {
  const auto ahead = [&](const TensorView& tensor, size_t size) {
    for (size_t at = begin * size; at < std::min(tensor.bytes.size(), (begin + kBlock) * size); at += 64)
      __builtin_prefetch(tensor.bytes.data() + at);
  };
  ahead(pair_.reference, format_.size);
  ahead(pair_.candidate, format_.size);
  if (pair_.exact) ahead(*pair_.exact, exact_format_->size);
}

// A look at some elements, to keep few errors in the pass over all: the threshold is a guess from which the result is
// exact or, if the guess was bad, known to need another pass.
void Comparison::sample() {
  for (Tail* tail : {&reference_tail_, &candidate_tail_}) tail->values.reserve(std::min(count_, kSmall));
  if (!pair_.exact || count_ <= kSmall) return;
  const bool large = count_ >= size_t{1} << 20, huge = count_ >= size_t{1} << 24;
  const size_t run = large ? 256 : 16, runs = huge || !large ? 64 : 16;
  Values sampled_values;
  std::vector<double> of_reference, of_candidate;
  const auto part = [&](const TensorView& tensor, size_t from, size_t n) {
    const size_t size = tensor.bytes.size() / count_;
    return tensor.bytes.substr(from * size, n * size);
  };
  const auto on_pages = [&](const std::function<void(std::string_view)>& act, size_t from, size_t n) {
    if (!act) return;
    for (const TensorView* tensor : {&pair_.reference, &pair_.candidate, &*pair_.exact}) act(part(*tensor, from, n));
  };
  if (!large) on_pages(pages_.load, 0, count_);
  for (size_t i = 0; i < runs; ++i) {
    const size_t begin = (count_ - run) / (runs - 1) * i;
    if (large) on_pages(pages_.load, begin, run);
    const Block block = values(begin, run, sampled_values);
    for (size_t j = 0; j < run; ++j) {
      const double r = std::abs(block.reference[j] - block.exact[j]), c = std::abs(block.candidate[j] - block.exact[j]);
      if (!std::isfinite(r) || !std::isfinite(c)) continue;
      of_reference.push_back(r);
      of_candidate.push_back(c);
    }
    if (large) on_pages(pages_.release, begin, run);
  }
  const auto sampled = static_cast<double>(of_reference.size());
  // Five standard deviations more than the share that is needed.
  const auto above = static_cast<size_t>(sampled * kTail + 5 * std::sqrt(sampled * kTail) + 4);
  if (of_reference.size() <= above) return;
  const double share = static_cast<double>(above) / sampled;
  for (auto [errors, tail] : {std::pair{&of_reference, &reference_tail_}, {&of_candidate, &candidate_tail_}}) {
    tail->threshold = select(*errors, errors->size() - 1 - above);
    const auto room = static_cast<size_t>(2 * share * static_cast<double>(count_)) + kSmall;
    tail->values.reserve(std::min({room, kLargestTail, count_}));
  }
}

void Comparison::prepare() {
  sample();
  sums_.resize(chunks());
  ulp_counts_.resize(kUlpBins);
}

void Comparison::begin(Scratch& scratch) {
  Tally& tally = scratch.tally;
  tally = {};
  tally.rtol = pair_.rule.rtol;
  tally.atol = pair_.rule.atol;
  tally.reference_tail = scratch.reference_tail.data();
  tally.candidate_tail = scratch.candidate_tail.data();
  scratch.nonfinite = false;
  scratch.one_sided = SIZE_MAX;
  const std::lock_guard lock(mutex_);
  tally.reference_threshold = reference_tail_.overflowed ? kInfinity : reference_tail_.threshold;
  tally.candidate_threshold = candidate_tail_.overflowed ? kInfinity : candidate_tail_.threshold;
  tally.known_severity = severity_;
  tally.known_relative = max_rel_;
}

void Comparison::work(size_t chunk, Scratch& scratch) {
  if (!first_pass_) return refine(chunk, scratch);
  begin(scratch);
  compare(chunk, scratch);
  absorb(chunk, scratch);
}

void Comparison::compare(size_t chunk, Scratch& scratch) {
  const size_t start = chunk * kChunk, end = std::min(count_, start + kChunk);
  for (size_t begin = start; begin < end; begin += kBlock) {
    const size_t count = std::min(kBlock, end - begin), whole = count - count % kLanes;
    prefetch(begin + 2 * kBlock);
    RawBlock block = raw(begin, count, scratch.values);
    kernels().add_distances(block.dtype, block.reference, block.candidate, count, scratch.ulps);
    block.count = whole;
    const size_t done = add_finite(block, begin - start, scratch) ? whole : 0;
    if (done == count) continue;
    const Block rest = values(begin + done, count - done, scratch.values);
    add_any(rest, begin + done, begin - start + done, scratch);
  }
}

// False if the elements must be added one by one.
bool Comparison::add_finite(RawBlock block, size_t first, Scratch& scratch) const {
  if (block.count == 0 || block.dtype == Dtype::Int64) return false;  // int64 beyond 2^53 is not exact in f64
  if (block.dtype != Dtype::Float32 && block.dtype != Dtype::Float64) {
    kernels().widen(block.dtype, block.reference, block.count, scratch.values.reference.data());
    kernels().widen(block.dtype, block.candidate, block.count, scratch.values.candidate.data());
    block.dtype = Dtype::Float64;
    block.reference = reinterpret_cast<const char*>(scratch.values.reference.data());
    block.candidate = reinterpret_cast<const char*>(scratch.values.candidate.data());
  }
  return kernels().add_finite(block, first, scratch.tally);
}

// Of two int64 the exact one, rounded once.
double Comparison::difference(size_t at, double reference, double candidate) const {
  if (format_.dtype != Dtype::Int64 || pair_.fault) return std::abs(candidate - reference);
  uint64_t apart = 0;
  kernels().distances(Dtype::Int64, pair_.reference.bytes.data() + at * sizeof(int64_t),
                      pair_.candidate.bytes.data() + at * sizeof(int64_t), 1, &apart);
  return static_cast<double>(apart);
}

// Elements of any kind, one by one. `begin` is the first one's place in the tensor, a multiple of kLanes; `first` that
// in the chunk.
void Comparison::add_any(const Block& block, size_t begin, size_t first, Scratch& scratch) const {
  Tally& tally = scratch.tally;
  for (size_t i = 0; i < block.count; ++i) {
    const double r = block.reference[i], c = block.candidate[i];
    if (!std::isfinite(r) || !std::isfinite(c)) {
      if (same(r, c)) {
        scratch.nonfinite = true;
      } else {
        scratch.one_sided = std::min(scratch.one_sided, first + i);
        ++tally.mismatches;
      }
      continue;
    }
    const double apart = difference(begin + i, r, c), allowed = tally.atol + tally.rtol * std::abs(r);
    const double severity = apart == 0 ? 0 : allowed == 0 ? kInfinity : apart / allowed;
    tally.mismatches += severity > 1;
    if (severity > tally.severity) tally.worst = first + i;
    tally.severity = std::max(tally.severity, severity);
    tally.max_abs = std::max(tally.max_abs, apart);
    if (r != 0) tally.max_rel = std::max(tally.max_rel, apart / std::abs(r));
    const size_t lane = i % kLanes;
    tally.product[lane] += r * c;
    tally.reference_squares[lane] += r * r;
    tally.candidate_squares[lane] += c * c;
    if (!block.exact || !std::isfinite(block.exact[i])) continue;
    const double of_reference = std::abs(r - block.exact[i]), of_candidate = std::abs(c - block.exact[i]);
    ++tally.errors;
    tally.reference_error_squares[lane] += of_reference * of_reference;
    tally.candidate_error_squares[lane] += of_candidate * of_candidate;
    if (of_reference > tally.reference_threshold) tally.reference_tail[tally.reference_kept++] = of_reference;
    if (of_candidate > tally.candidate_threshold) tally.candidate_tail[tally.candidate_kept++] = of_candidate;
  }
}

void Comparison::absorb(size_t chunk, Scratch& scratch) {
  const Tally& tally = scratch.tally;
  const size_t start = chunk * kChunk;
  const auto keep = [](Tail& tail, const double* errors, size_t count) {
    if (tail.values.size() + count > tail.values.capacity()) tail.overflowed = true;
    if (!tail.overflowed) tail.values.insert(tail.values.end(), errors, errors + count);
  };
  const std::lock_guard lock(mutex_);
  sums_[chunk] = {sum(tally.product), sum(tally.reference_squares), sum(tally.candidate_squares),
                  sum(tally.reference_error_squares), sum(tally.candidate_error_squares)};
  errors_ += tally.errors;
  mismatches_ += tally.mismatches;
  nonfinite_ = nonfinite_ || scratch.nonfinite;
  if (scratch.one_sided != SIZE_MAX) one_sided_ = std::min(one_sided_, start + scratch.one_sided);
  const size_t worst = start + tally.worst;
  if (tally.severity > severity_ || (tally.severity == severity_ && severity_ > 0 && worst < worst_)) worst_ = worst;
  severity_ = std::max(severity_, tally.severity);
  max_abs_ = std::max(max_abs_, tally.max_abs);
  max_rel_ = std::max(max_rel_, tally.max_rel);
  keep(reference_tail_, tally.reference_tail, tally.reference_kept);
  keep(candidate_tail_, tally.candidate_tail, tally.candidate_kept);
  ulp_largest_ = std::max(ulp_largest_, scratch.ulps.largest);
  scratch.ulps.move_to(ulp_counts_);
}

OrderStatistic Comparison::error_quantile(Tail& tail) const {
  if (errors_ == 0) return {};
  const uint64_t at = percentile_index(errors_), from_top = errors_ - at, kept = tail.values.size();
  if (tail.overflowed) return {0, key_of(kInfinity), at, errors_};
  if (from_top <= kept) {
    const uint64_t found = key_of(select(tail.values, kept - from_top));
    return {found, found, 0, 1};
  }
  return {0, key_of(tail.threshold), at, errors_ - kept};  // known at once if the threshold is 0
}

OrderStatistic Comparison::ulp_quantile(double q) const {
  auto rank = static_cast<uint64_t>(q * static_cast<double>(count_ - 1));
  size_t bin = 0;
  while (rank >= ulp_counts_[bin]) rank -= ulp_counts_[bin++];
  if (bin < kExact) return {bin, bin, 0, 1};
  const size_t coarse = (bin - kExact) / 64, width = size_t{1} << (coarse + 5);
  const uint64_t low = (64 + (bin - kExact) % 64) * width;
  return {low, std::min(low + (width - 1), ulp_largest_), rank, ulp_counts_[bin]};
}

bool Comparison::next_pass() {
  if (count_ == 0) return false;
  if (first_pass_) {
    first_pass_ = false;
    statistics_ = {error_quantile(reference_tail_), error_quantile(candidate_tail_), ulp_quantile(0.5),
                   ulp_quantile(0.99)};
    reference_tail_ = candidate_tail_ = {};
  } else {
    for (size_t i = 0; i < kStatistics; ++i) {
      if (!statistics_[i].known()) statistics_[i].end(passes_[i]);
    }
  }
  passes_ = {};
  return std::any_of(statistics_.begin(), statistics_.end(), [](const auto& each) { return !each.known(); });
}

void Comparison::refine(size_t chunk, Scratch& scratch) {
  std::array<OrderStatistic::Pass, kStatistics> passes;
  const auto see = [&](Statistic which, uint64_t key) {
    if (!statistics_[which].known()) statistics_[which].see(key, passes[which]);
  };
  const bool errors = !statistics_[kReferenceError].known() || !statistics_[kCandidateError].known();
  const bool ulps = !statistics_[kUlpMedian].known() || !statistics_[kUlp99].known();
  const size_t end = std::min(count_, (chunk + 1) * kChunk);
  for (size_t begin = chunk * kChunk; begin < end; begin += kBlock) {
    const Block block = values(begin, std::min(kBlock, end - begin), scratch.values);
    if (ulps) {
      const RawBlock bits = raw(begin, block.count, scratch.values);
      kernels().distances(bits.dtype, bits.reference, bits.candidate, bits.count, scratch.distances.data());
    }
    for (size_t i = 0; i < block.count; ++i) {
      if (ulps) {
        see(kUlpMedian, scratch.distances[i]);
        see(kUlp99, scratch.distances[i]);
      }
      if (!errors || !std::isfinite(block.reference[i]) || !std::isfinite(block.candidate[i]) ||
          !std::isfinite(block.exact[i]))
        continue;
      see(kReferenceError, key_of(std::abs(block.reference[i] - block.exact[i])));
      see(kCandidateError, key_of(std::abs(block.candidate[i] - block.exact[i])));
    }
  }
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < kStatistics; ++i) OrderStatistic::merge(passes[i], passes_[i]);
}

Judgement Comparison::judgement() const {
  Judgement result;
  result.nonfinite = nonfinite_;
  const bool one_sided = one_sided_ != SIZE_MAX;
  result.severity = one_sided ? kInfinity : severity_;
  Sums total{};
  for (const Sums& part : sums_) {
    total.product += part.product;
    total.reference_squares += part.reference_squares;
    total.candidate_squares += part.candidate_squares;
    total.reference_error_squares += part.reference_error_squares;
    total.candidate_error_squares += part.candidate_error_squares;
  }
  const auto rmse = [&](double squares) {
    return errors_ == 0 ? 0 : std::sqrt(squares / static_cast<double>(errors_));
  };
  const auto p999 = [&](Statistic which) { return std::bit_cast<double>(statistics_[which].key()); };
  const double reference_rmse = rmse(total.reference_error_squares),
               candidate_rmse = rmse(total.candidate_error_squares);
  const double factor = pair_.rule.factor;
  const bool judged = pair_.exact && !one_sided && errors_ > 0 && candidate_rmse <= factor * reference_rmse &&
                      p999(kCandidateError) <= factor * p999(kReferenceError);
  result.passed_by = mismatches_ == 0 ? "tolerance" : judged ? "judge" : "";
  result.passed = !result.passed_by.empty();
  const auto of_judge = [&](double value) { return pair_.exact ? json(value) : json(); };
  const size_t worst = one_sided ? one_sided_ : worst_;
  json worst_reference, worst_candidate;
  if (count_ > 0) {
    Values of_worst;
    const Block block = values(worst, 1, of_worst);
    worst_reference = *block.reference;
    worst_candidate = *block.candidate;
  }
  result.row = {{"dtype", pair_.fault ? "float64" : pair_.reference.dtype},
                {"rmse_reference", of_judge(reference_rmse)},
                {"rmse_candidate", of_judge(candidate_rmse)},
                {"p999_reference", of_judge(p999(kReferenceError))},
                {"p999_candidate", of_judge(p999(kCandidateError))},
                {"max_abs", max_abs_},
                {"max_rel", max_rel_},
                {"cosine", cosine(total.product, total.reference_squares, total.candidate_squares)},
                {"mismatches", count_ == 0 ? 0.0 : static_cast<double>(mismatches_) / static_cast<double>(count_)},
                {"worst_index", count_ == 0 ? json::array() : index_of(worst, pair_.reference.shape)},
                {"worst_reference", worst_reference},
                {"worst_candidate", worst_candidate},
                {"passed_by", result.passed ? json(result.passed_by) : json()},
                {"verdict", result.passed ? "pass" : "stop"},
                {"ulp_p50", statistics_[kUlpMedian].key()},
                {"ulp_p99", statistics_[kUlp99].key()},
                {"ulp_max", ulp_largest_}};
  return result;
}

}  // namespace tpupilot::numerics
