// Random words: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011).
#include <array>

#include "hlo/builder.h"

namespace tpupilot::hlo {
namespace {

constexpr int kRounds = 10;
constexpr int64_t kMultipliers[2] = {0xD2511F53, 0xCD9E8D57};
constexpr int64_t kWeyl[2] = {0x9E3779B9, 0xBB67AE85};

// Every element computes the whole block that its word lies in and picks the word: two or four times the work of need,
// yet faster on XLA:CPU than its own generator, or than blocks that are then interleaved.
class Philox {
 public:
  Philox(Builder& builder, const Value& state, Dims dims)
      : b_(builder), narrow_{Elem::U32, std::move(dims)}, wide_(narrow_.with(Elem::U64)) {
    seed_ = word_of(state, 0);
    offset_ = word_of(state, 1);
  }

  // `words` U32 words of a block to an element.
  Value bits(int64_t words) {
    const int64_t in_block = 4 / words;
    const Value position = b_.reshape(b_.iota({Elem::U64, {wide_.numel()}}, 0), wide_.dims);
    const Value count = b_.constant_int(in_block, wide_);
    const auto block = words_of_block(b_.add(broadcast(offset_), b_.div(position, count)));
    const Value lane = b_.binary("stablehlo.remainder", position, count);
    const auto is = [&](int64_t i) { return b_.compare(Direction::EQ, lane, b_.constant_int(i, wide_)); };
    if (words == 1) {
      const Value low = b_.select(is(0), block[0], block[1]), high = b_.select(is(2), block[2], block[3]);
      return b_.select(b_.compare(Direction::LT, lane, b_.constant_int(2, wide_)), low, high);
    }
    return b_.select(is(0), joined(block[0], block[1]), joined(block[2], block[3]));
  }

 private:
  using Block = std::array<Value, 4>;

  Value word_of(const Value& state, int64_t i) { return b_.reshape(b_.slice_dim(state, 0, i, i + 1), {}); }
  Value broadcast(const Value& scalar) { return b_.broadcast(scalar, narrow_.dims); }
  Value low(const Value& x) { return b_.convert(x, Elem::U32); }
  Value high(const Value& x) { return low(b_.binary("stablehlo.shift_right_logical", x, b_.constant_int(32, x.type))); }
  Value joined(const Value& low_word, const Value& high_word) {
    const Value shifted =
        b_.binary("stablehlo.shift_left", b_.convert(high_word, Elem::U64), b_.constant_int(32, wide_));
    return b_.logical_or(b_.convert(low_word, Elem::U64), shifted);
  }
  Value exclusive_or(const Value& x, const Value& y) { return b_.binary("stablehlo.xor", x, y); }

  // The counter of block i is i, in 128 bits; the key is the seed.
  Block words_of_block(const Value& index) {
    const Value zero = b_.zeros(narrow_);
    Block words = {low(index), high(index), zero, zero};
    Value key[2] = {low(seed_), high(seed_)};
    for (int round = 0; round < kRounds; ++round) {
      const Value p0 = product(words[0], kMultipliers[0]), p1 = product(words[2], kMultipliers[1]);
      words = {exclusive_or(exclusive_or(high(p1), words[1]), broadcast(key[0])), low(p1),
               exclusive_or(exclusive_or(high(p0), words[3]), broadcast(key[1])), low(p0)};
      for (int i = 0; i < 2; ++i) key[i] = b_.add(key[i], b_.constant_int(kWeyl[i], key[i].type));
    }
    return words;
  }
  Value product(const Value& x, int64_t multiplier) {
    return b_.mul(b_.convert(x, Elem::U64), b_.constant_int(multiplier, wide_));
  }

  Builder& b_;
  Type narrow_, wide_;
  Value seed_, offset_;
};

Value philox(Builder& builder, const Value& state, const Type& type) {
  return Philox(builder, state, type.dims).bits(type.elem == Elem::U32 ? 1 : 2);
}

}  // namespace

// As pairs of words, which halves the work; apart, or XLA draws again for every op that uses them.
Value Builder::many_random_bits(const Value& state, const Type& type) {
  const int64_t words = type.elem == Elem::U32 ? 1 : 2, pairs = (type.numel() * words + 1) / 2;
  const Value drawn =
      apart({state}, [&](const Values& in) { return Values{philox(*this, in[0], {Elem::U64, {pairs}})}; })[0];
  if (words == 2) return reshape(drawn, type.dims);
  const Value halves = reshape(bitcast(drawn, {Elem::U32, {pairs, 2}}), {2 * pairs});
  return reshape(slice_dim(halves, 0, 0, type.numel()), type.dims);
}

Value Builder::random_bits(const Value& state, Type type) {
  if (state.type != Type{Elem::U64, {2}})
    fail("random_bits", "needs a state of tensor<2xui64>, not " + state.type.str());
  if (type.elem != Elem::U32 && type.elem != Elem::U64) fail("random_bits", "draws U32 or U64, not " + type.str());
  if (type.numel() == 0) return zeros(std::move(type));
  if (target_.cpu()) return type.numel() > kSmall ? many_random_bits(state, type) : philox(*this, state, type);
  return ops("stablehlo.rng_bit_generator", {state}, {state.type, std::move(type)},
             "rng_algorithm = #stablehlo<rng_algorithm PHILOX>")[1];
}

}  // namespace tpupilot::hlo
