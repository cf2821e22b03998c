// _ctc_loss and its gradient: the forward and backward recurrences of Graves et al. 2006 in log space, over the targets
// with blanks between (and around) them: 2 S + 1 states. One loop over time, all samples at once.
#include <algorithm>
#include <limits>
#include <vector>

#include "ops/expr.h"
#include "ops/indexing.h"

namespace tpupilot::ops {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

struct Ctc {
  int64_t time, batch, classes, states;
  Dims input_lengths, target_lengths;
  Elem elem;
  Expr log_probs;  // [T, N, C]
  Value symbols;   // S64 [N, states]: the class of each state
  Expr exists;     // Pred [N, states]: a state of this sample
  Expr may_skip;   // Pred [N, states]: may come from two states before, over a blank between other symbols
  Dims dims() const { return {batch, states}; }
};

int64_t longest(const Dims& lengths) {
  return lengths.empty() ? 0 : std::max<int64_t>(*std::max_element(lengths.begin(), lengths.end()), 0);
}

[[noreturn]] void refuse(const std::string& why) { throw hlo::Error(why); }

void check_lengths(const Ctc& k) {
  const auto count = [&](const Dims& lengths, const char* name) {
    if (static_cast<int64_t>(lengths.size()) != k.batch) refuse(std::string(name) + " must be of size batch_size");
  };
  count(k.input_lengths, "input_lengths");
  count(k.target_lengths, "target_lengths");
  for (const int64_t length : k.input_lengths) {
    if (length < 0 || length > k.time)
      refuse("Expected input_lengths to have value at most " + std::to_string(k.time) + ", but got value " +
             std::to_string(length));
  }
}

// Each state's place in the flat targets, the place of their end for a blank.
std::vector<int64_t> places_of(const Ctc& k, const Type& targets) {
  const int64_t end = targets.numel();
  std::vector<int64_t> places;
  int64_t start = 0;
  for (int64_t n = 0; n < k.batch; ++n) {
    const int64_t length = k.target_lengths[static_cast<size_t>(n)];
    if (targets.rank() > 1) start = n * targets.dims[1];
    for (int64_t s = 0; s < k.states; ++s) places.push_back(s % 2 == 1 && s / 2 < length ? start + s / 2 : end);
    if (targets.rank() <= 1) start += length;
  }
  return places;
}

Value predicate(Builder& b, const std::vector<int64_t>& values, const Dims& dims) {
  return b.convert(b.reshape(b.constant_ints(values, Elem::S64), dims), Elem::Pred);
}

Ctc ctc_of(Context& c) {
  Builder& b = c.b;
  const Value probs = c.tensor("log_probs"), targets = c.tensor("targets");
  const bool batched = probs.rank() == 3;
  Ctc k{probs.dims()[0],
        batched ? probs.dims()[1] : 1,
        probs.dims().back(),
        0,
        c.integers("input_lengths"),
        c.integers("target_lengths"),
        hlo::compute_elem(probs.elem()),
        {},
        {},
        {},
        {}};
  check_lengths(k);
  k.states = 2 * longest(k.target_lengths) + 1;
  k.log_probs = expr(c, b.reshape(b.convert(probs, k.elem), {k.time, k.batch, k.classes}));
  const Value blank = b.constant_int(c.integer("blank"), {Elem::S64, {1}});
  const Value flat = b.reshape(b.convert(targets, Elem::S64), {targets.type.numel()});
  const Value with_blank = b.concatenate({flat, blank}, 0);
  const Value places = b.constant_ints(places_of(k, targets.type), Elem::S64);
  k.symbols = b.reshape(take_slices(b, with_blank, places, 0), k.dims());
  std::vector<int64_t> exists, odd;
  for (const int64_t length : k.target_lengths) {
    for (int64_t s = 0; s < k.states; ++s) {
      exists.push_back(s < 2 * length + 1 ? 1 : 0);
      odd.push_back(s % 2 == 1 && s >= 3 && s < 2 * length + 1 ? 1 : 0);
    }
  }
  k.exists = expr(c, predicate(b, exists, k.dims()));
  const Value two_before = b.pad(k.symbols, b.constant_int(-1, {Elem::S64, {}}), {0, 2}, {0, -2}, {0, 0});
  k.may_skip = expr(c, predicate(b, odd, k.dims())) & !equal(expr(c, k.symbols), expr(c, two_before));
  return k;
}

// states moved on by `distance` (back where it is negative); -inf comes in.
Expr shifted(const Expr& x, int64_t distance) {
  Builder& b = *x.b;
  return {&b, b.pad(x, b.constant(kMinusInfinity, {x.v.elem(), {}}), {0, distance}, {0, -distance}, {0, 0})};
}

// log(e^x + e^y + e^z); -inf where all are.
Expr log_sum(const Expr& x, const Expr& y, const Expr& z) {
  const Expr most = maximum(maximum(x, y), z);
  const Expr base = where(equal(most, kMinusInfinity), 0, most);
  return log(exp(x - base) + exp(y - base) + exp(z - base)) + base;
}

// The log probabilities of the states' symbols at a time (a 0-d S64).
Expr emission(Context& c, const Ctc& k, const Value& t) {
  Builder& b = c.b;
  const Value zero = b.zeros({Elem::S64, {}});
  const Value now =
      b.reshape(b.dynamic_slice(k.log_probs, {t, zero, zero}, {1, k.batch, k.classes}), {k.batch, k.classes});
  return expr(c, gather_along(b, now, k.symbols, 1));
}

Value put_time(Builder& b, const Value& all, const Value& one, const Value& t) {
  const Value zero = b.zeros({Elem::S64, {}});
  return b.dynamic_update_slice(all, b.reshape(one, {1, one.dims()[0], one.dims()[1]}), {t, zero, zero});
}

// Pred [N, states]: t (0-d) lies before, or is, each sample's `limits`.
Expr at_time(Context& c, const Ctc& k, const Value& t, const std::vector<int64_t>& limits, bool exactly) {
  const Expr limit = along(expr(c, c.b.constant_ints(limits, Elem::S64)), 0, k.dims());
  const Expr now = broadcast(expr(c, t), k.dims());
  return exactly ? equal(now, limit) : now < limit;
}

std::vector<int64_t> plus(Dims values, int64_t addend) {
  for (int64_t& v : values) v += addend;
  return values;
}

// The last two states of each sample (one if its target is empty), Pred [N, states].
Expr final_states(Context& c, const Ctc& k) {
  std::vector<int64_t> last;
  for (const int64_t length : k.target_lengths) {
    for (int64_t s = 0; s < k.states; ++s) last.push_back(s == 2 * length || s == 2 * length - 1 ? 1 : 0);
  }
  return expr(c, predicate(c.b, last, k.dims()));
}

// log alpha, [T, N, states]: of all ways to have come to a state at a time, its symbol included.
Value alphas(Context& c, const Ctc& k) {
  Builder& b = c.b;
  const Expr none = expr(c, b.constant(kMinusInfinity, {k.elem, k.dims()}));
  const Expr is_start = expr(c, b.iota({Elem::S64, k.dims()}, 1)) < 2;
  const Value all = b.constant(kMinusInfinity, {k.elem, {k.time, k.batch, k.states}});
  const Value one = b.constant_int(1, {Elem::S64, {}});
  const Values out = b.while_loop(
      {b.zeros({Elem::S64, {}}), none, all},
      [&](const Values& s) { return b.compare(hlo::Direction::LT, s[0], b.constant_int(k.time, {Elem::S64, {}})); },
      [&](const Values& s) {
        const Expr before = expr(c, s[1]);
        const Expr skipped = where(k.may_skip, shifted(before, 2), none);
        const Expr first = broadcast(equal(expr(c, s[0]), 0), k.dims());
        const Expr reached = where(first, where(is_start, 0, none), log_sum(before, shifted(before, 1), skipped));
        const Expr alive = k.exists & at_time(c, k, s[0], k.input_lengths, false);
        const Expr alpha = where(alive, reached + emission(c, k, s[0]), none);
        return Values{b.add(s[0], one), alpha, put_time(b, s[2], alpha, s[0])};
      });
  return out[2];
}

Value samples_shape(Context& c, const Value& v, size_t result) { return c.b.reshape(v, c.result(result).dims); }

Values ctc_loss(Context& c) {
  Builder& b = c.b;
  const Ctc k = ctc_of(c);
  if (k.batch == 0) return {b.zeros(c.result(0)), b.zeros(c.result(1))};
  const Value all = alphas(c, k);
  const Value by_sample = b.transpose(all, {1, 0, 2});
  std::vector<int64_t> last;
  for (const int64_t length : k.input_lengths) last.push_back(std::max<int64_t>(length - 1, 0));
  const Value place = b.broadcast_in_dim(b.constant_ints(last, Elem::S64), {k.batch, 1, k.states}, {0});
  const Expr end = expr(c, b.reshape(gather_along(b, by_sample, place, 1), k.dims()));
  const Expr kept = where(final_states(c, k), end, expr(c, b.constant(kMinusInfinity, {k.elem, k.dims()})));
  const Expr most = expr(c, b.amax(kept, {1})), base = where(equal(most, kMinusInfinity), 0, most);
  Expr loss = -(log(sum(exp(kept - along(base, 0, k.dims())), {1})) + base);
  // Without input only an empty target is possible.
  std::vector<int64_t> certain;
  certain.reserve(k.input_lengths.size());
  for (size_t n = 0; n < k.input_lengths.size(); ++n)
    certain.push_back(k.input_lengths[n] == 0 && k.target_lengths[n] == 0 ? 1 : 0);
  loss = where(expr(c, predicate(b, certain, {k.batch})), 0, loss);
  return {samples_shape(c, loss, 0), samples_shape(c, by_sample, 1)};
}

// What each class gets of the probability that a path passes through its states, by time: [T, N, C].
Value occupancy(Context& c, const Ctc& k, const Value& log_alpha, const Expr& loss) {
  Builder& b = c.b;
  const Expr none = expr(c, b.constant(kMinusInfinity, {k.elem, k.dims()}));
  const Value minus_one = b.constant_int(-1, {Elem::S64, {}}), zero = b.zeros({Elem::S64, {}});
  const Expr ends = final_states(c, k),
             may_skip_to_next = expr(c, b.pad(k.may_skip, b.zeros({Elem::Pred, {}}), {0, -2}, {0, 2}, {0, 0}));
  const Values out = b.while_loop(
      {b.constant_int(k.time - 1, {Elem::S64, {}}), none, b.zeros(k.log_probs.v.type)},
      [&](const Values& s) { return b.compare(hlo::Direction::GE, s[0], b.zeros({Elem::S64, {}})); },
      [&](const Values& s) {
        const Expr later = expr(c, s[1]);
        const Expr skipped = where(may_skip_to_next, shifted(later, -2), none);
        const Expr last = at_time(c, k, s[0], plus(k.input_lengths, -1), true);
        const Expr leaving = where(last, where(ends, 0, none), log_sum(later, shifted(later, -1), skipped));
        const Expr alive = k.exists & at_time(c, k, s[0], k.input_lengths, false), lp = emission(c, k, s[0]);
        const Expr beta = where(alive, leaving + lp, none);
        const Value alpha =
            b.reshape(b.dynamic_slice(log_alpha, {s[0], b.zeros({Elem::S64, {}}), b.zeros({Elem::S64, {}})},
                                      {1, k.batch, k.states}),
                      k.dims());
        const Expr paths = expr(c, alpha) + beta;
        const Expr share = where(equal(paths, kMinusInfinity), 0, exp(paths + along(loss, 0, k.dims()) - lp));
        const Value classes =
            scatter_along(b, b.zeros({k.elem, {k.batch, k.classes}}), k.symbols, share, 1, "stablehlo.add");
        return Values{b.add(s[0], minus_one), beta, put_time(b, s[2], classes, s[0])};
      });
  return out[2];
}

Values ctc_loss_backward(Context& c) {
  Builder& b = c.b;
  const Ctc k = ctc_of(c);
  if (c.result().numel() == 0) return {b.zeros(c.result())};
  const auto vector = [&](std::string_view name) {
    return expr(c, b.broadcast(b.reshape(b.convert(c.tensor(name), k.elem), {c.tensor(name).type.numel()}), {k.batch}));
  };
  const Expr loss = vector("neg_log_likelihood"), grad = vector("grad");
  const Value log_alpha =
      b.transpose(b.reshape(b.convert(c.tensor("log_alpha"), k.elem), {k.batch, k.time, k.states}), {1, 0, 2});
  const Dims& full = k.log_probs.v.dims();
  const Expr taken = expr(c, occupancy(c, k, log_alpha, loss));
  const Expr everywhere = along(loss, 1, full), impossible = equal(everywhere, -kMinusInfinity);
  Expr g = (exp(k.log_probs) - taken) * along(grad, 1, full);
  // An impossible target has no gradient that means something: NaN, or 0 where that was asked for.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  g = where(impossible, number(g, c.boolean("zero_infinity") ? 0 : nan), g);
  const Expr times = expr(c, b.iota({Elem::S64, full}, 0)),
             limits = along(expr(c, b.constant_ints(k.input_lengths, Elem::S64)), 1, full);
  return {b.reshape(where(times < limits, g, 0), c.result().dims)};
}

std::vector<Type> loss_shape(Context& c) {
  const Type probs = c.tensor("log_probs").type;
  const int64_t states = 2 * longest(c.integers("target_lengths")) + 1;
  if (probs.rank() < 3) return {probs.with(Dims{}), probs.with(Dims{probs.dims[0], states})};
  return {probs.with(Dims{probs.dims[1]}), probs.with(Dims{probs.dims[1], probs.dims[0], states})};
}
std::vector<Type> like_log_probs(Context& c) { return {c.tensor("log_probs").type}; }

}  // namespace

std::vector<Row> ctc_rows() {
  constexpr std::string_view kLengths = "other lengths are another program";
  return {
      {.overloads = {"_ctc_loss"}, .emit = ctc_loss, .shape = loss_shape, .remark = kLengths},
      {.overloads = {"_ctc_loss_backward"}, .emit = ctc_loss_backward, .shape = like_log_probs, .remark = kLengths},
  };
}

}  // namespace tpupilot::ops
