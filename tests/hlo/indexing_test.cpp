// Contractions, convolution, gather, scatter, sort, loops and random bits, by number.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "support/run.h"

namespace tpupilot::hlo {
namespace {

using test::array;
using test::Array;
using test::doubles;
using Numbers = std::vector<double>;

Numbers small(int64_t n, int64_t seed) {
  Numbers out;
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<double>((i * 7 + seed) % 5 - 2));
  return out;
}

TEST(DotGeneral, BatchedAndTransposed) {
  for (Elem elem : {Elem::F32, Elem::BF16, Elem::S64}) {
    Builder b;
    const Value x = b.parameter({elem, {2, 3, 4}}), y = b.parameter({elem, {2, 5, 4}});
    const Numbers p = small(24, 1), q = small(40, 3);
    const Value z = b.dot_general(x, y, {0}, {0}, {2}, {2});
    ASSERT_EQ(z.type, (Type{elem, {2, 3, 5}}));
    const Numbers out = doubles(test::evaluate(b, {z}, {array(x.type, p), array(y.type, q)})[0]);
    for (size_t n = 0; n < 2; ++n) {
      for (size_t i = 0; i < 3; ++i) {
        for (size_t j = 0; j < 5; ++j) {
          double sum = 0;
          for (size_t k = 0; k < 4; ++k) sum += p[(n * 3 + i) * 4 + k] * q[(n * 5 + j) * 4 + k];
          EXPECT_EQ(out[(n * 3 + i) * 5 + j], sum) << name(elem);
        }
      }
    }
  }
}

TEST(DotGeneral, WidensItsResultOnRequest) {
  Builder b;
  const Value x = b.parameter({Elem::BF16, {1, 512}});
  const Value z = b.dot_general(x, x, {}, {}, {1}, {1}, Elem::F32);
  ASSERT_EQ(z.type, (Type{Elem::F32, {1, 1}}));
  Numbers ones(512, 1);
  ones[0] = 2;
  EXPECT_EQ(doubles(test::evaluate(b, {z}, {array(x.type, ones)})[0]), Numbers{515});  // bf16 has no 515
}

TEST(Convolution, StridesPadsAndGroups) {
  Builder b;
  const Value x = b.parameter({Elem::F32, {1, 4, 5, 5}}), k = b.parameter({Elem::F32, {2, 2, 3, 3}});
  Convolution c{{2, 1}, {{1, 1}, {0, 1}}, {1, 1}, {1, 1}, "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"};
  c.feature_group_count = 2;
  const Value y = b.convolution(x, k, c, {1, 2, 3, 4});
  const Numbers p = small(100, 2), q = small(36, 1);
  const Numbers out = doubles(test::evaluate(b, {y}, {array(x.type, p), array(k.type, q)})[0]);
  for (int64_t o = 0; o < 2; ++o) {
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < 4; ++j) {
        double sum = 0;
        for (int64_t f = 0; f < 2; ++f) {
          for (int64_t u = 0; u < 3; ++u) {
            for (int64_t v = 0; v < 3; ++v) {
              const int64_t row = i * 2 + u - 1, column = j + v;
              if (row < 0 || row >= 5 || column >= 5) continue;
              sum += p[static_cast<size_t>(((o * 2 + f) * 5 + row) * 5 + column)] *
                     q[static_cast<size_t>(((o * 2 + f) * 3 + u) * 3 + v)];
            }
          }
        }
        EXPECT_EQ(out[static_cast<size_t>((o * 3 + i) * 4 + j)], sum);
      }
    }
  }
}

TEST(Gather, RowsAndElements) {
  Builder b;
  const Value table = b.parameter({Elem::F32, {4, 3}}), rows = b.parameter({Elem::S64, {2, 2}}),
              columns = b.parameter({Elem::S64, {4, 2}});
  Gather by_row{.offset_dims = {2},
                .collapsed_slice_dims = {0},
                .start_index_map = {0},
                .index_vector_dim = 2,
                .slice_sizes = {1, 3}};
  Gather by_element{.collapsed_slice_dims = {1},
                    .operand_batching_dims = {0},
                    .start_indices_batching_dims = {0},
                    .start_index_map = {1},
                    .index_vector_dim = 2,
                    .slice_sizes = {1, 1}};
  const auto out =
      test::evaluate(b, {b.gather(table, rows, by_row, {2, 2, 3}), b.gather(table, columns, by_element, {4, 2})},
                     {array(table.type, {0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32}), array(rows.type, {3, 0, 1, 1}),
                      array(columns.type, {2, 0, 1, 1, 0, 0, 2, 1})});
  EXPECT_EQ(doubles(out[0]), (Numbers{30, 31, 32, 0, 1, 2, 10, 11, 12, 10, 11, 12}));
  EXPECT_EQ(doubles(out[1]), (Numbers{2, 0, 11, 11, 20, 20, 32, 31}));
  EXPECT_THROW(b.gather(table, rows, by_row, {2, 2, 4}), Error);
  EXPECT_THROW(b.gather(table, table, by_row, {2, 2, 3}), Error);
}

TEST(Scatter, AddsAndReplaces) {
  Builder b;
  const Value x = b.parameter({Elem::S64, {4}}), at = b.parameter({Elem::S64, {3, 1}}),
              u = b.parameter({Elem::S64, {3}});
  const Scatter s{.inserted_window_dims = {0}, .scatter_dims_to_operand_dims = {0}, .index_vector_dim = 1};
  const auto out =
      test::evaluate(b, {b.scatter(x, at, u, s, "stablehlo.add"), b.scatter(x, at, u, s)},
                     {array(x.type, {1, 2, 3, 4}), array(at.type, {3, 0, 3}), array(u.type, {10, 20, 30})});
  EXPECT_EQ(doubles(out[0]), (Numbers{21, 2, 3, 44}));
  EXPECT_EQ(doubles(out[1]), (Numbers{20, 2, 3, 30}));
  EXPECT_THROW(b.scatter(x, at, x, s), Error);
}

TEST(Sort, IsStableAndCarriesItsCompanions) {
  Builder b;
  const Value x = b.parameter({Elem::F32, {2, 4}}), i = b.iota({Elem::S32, {2, 4}}, 1);
  const auto out =
      test::evaluate(b, b.sort({x, i}, 1, [&](const Values& v) { return b.compare(Direction::GT, v[0], v[1]); }),
                     {array(x.type, {1, 3, 2, 3, 0, 0, 5, 0})});
  EXPECT_EQ(doubles(out[0]), (Numbers{3, 3, 2, 1, 5, 0, 0, 0}));
  EXPECT_EQ(doubles(out[1]), (Numbers{1, 3, 2, 0, 2, 0, 1, 3}));
}

TEST(While, CarriesValuesAndMayCapture) {
  Builder b;
  const Value x = b.parameter({Elem::S64, {2}}), zero = b.zeros({Elem::S32, {}}), one = b.constant(1, {Elem::S32, {}});
  const Value n = b.parameter({Elem::S32, {}});
  const Values out = b.while_loop(
      {zero, x}, [&](const Values& v) { return b.compare(Direction::LT, v[0], n); },
      [&](const Values& v) { return Values{b.add(v[0], one), b.add(v[1], b.mul(v[1], x))}; });
  const auto values = test::evaluate(b, out, {array(x.type, {2, 3}), array(n.type, {3})});
  EXPECT_EQ(doubles(values[0]), Numbers{3});
  EXPECT_EQ(doubles(values[1]), (Numbers{2 * 27, 3 * 64}));
}

TEST(If, ItsBranchesUseValuesFromOutside) {
  Builder b;
  const Value p = b.parameter({Elem::Pred, {}}), x = b.parameter({Elem::F32, {2}});
  const std::string branches = b.region({}, [&](const Values&) { return Values{b.neg(x)}; }) + ", " +
                               b.region({}, [&](const Values&) { return Values{x}; });
  const Value y = b.op("stablehlo.if", {p}, x.type, {}, branches);
  EXPECT_EQ(doubles(test::evaluate(b, {y}, {array(p.type, {1}), array(x.type, {1, 2})})[0]), (Numbers{-1, -2}));
}

// Philox4x32-10 of one counter, as its authors describe it.
using Words = std::array<uint32_t, 4>;
Words philox(Words counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0], p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

TEST(RandomBits, AreTheWordsOfPhilox) {
  constexpr uint32_t all = 0xffffffff;  // the authors' known answers
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({all, all, all, all}, {all, all}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  Builder b;
  const Value state = b.parameter({Elem::U64, {2}});
  // Few are drawn within their program, many in a function of their own, two words at a time.
  const Values bits = {b.random_bits(state, {Elem::U32, {2, 5}}), b.random_bits(state, {Elem::U64, {5}}),
                       b.random_bits(state, {Elem::U32, {3, 67}}), b.random_bits(state, {Elem::U64, {201}})};
  constexpr uint64_t seed = 0x0123'4567'89ab'cdef;
  for (const uint64_t offset : {uint64_t{0}, uint64_t{0x1'ffff'fffe}}) {
    const auto words = test::evaluate(b, bits, {Array::of<uint64_t>(state.type, {seed, offset})});
    const auto right = [&](uint64_t i) {
      const uint64_t block = offset + i / 4;
      return philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)})[i % 4];
    };
    for (const size_t k : {0, 2}) {
      const auto narrow = words[k].as<uint32_t>();
      const auto wide = words[k + 1].as<uint64_t>();
      for (uint64_t i = 0; i < narrow.size(); ++i) EXPECT_EQ(narrow[i], right(i)) << i << " of offset " << offset;
      for (uint64_t i = 0; i < wide.size(); ++i) {
        EXPECT_EQ(wide[i], right(2 * i) | uint64_t{right(2 * i + 1)} << 32) << i << " of offset " << offset;
      }
    }
  }
}

TEST(RandomBits, DependOnSeedAndOffset) {
  Builder b;
  const Value state = b.parameter({Elem::U64, {2}});
  const Value bits = b.random_bits(state, {Elem::U32, {1000}});
  const auto draw = [&](uint64_t seed, uint64_t offset) {
    return test::evaluate(b, {bits}, {Array::of<uint64_t>(state.type, {seed, offset})})[0].as<uint32_t>();
  };
  const auto first = draw(1, 0);
  EXPECT_EQ(first, draw(1, 0));
  EXPECT_NE(first, draw(2, 0));
  EXPECT_NE(first, draw(1, 1000));
  EXPECT_GT(std::set<uint32_t>(first.begin(), first.end()).size(), 990u);
  double ones = 0;
  for (uint32_t v : first) ones += __builtin_popcount(v);
  EXPECT_NEAR(ones / 32000, 0.5, 0.02);
}

}  // namespace
}  // namespace tpupilot::hlo
