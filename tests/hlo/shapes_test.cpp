// Helpers that move elements, against index arithmetic on the host.
#include <gtest/gtest.h>

#include <functional>

#include "support/run.h"

namespace tpupilot::hlo {
namespace {

using test::array;
using test::Array;
using test::doubles;
using Numbers = std::vector<double>;

Numbers counting(int64_t n) {
  Numbers out;
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<double>(i % 100 + 1));
  return out;
}

// out[i] = x[source(i)], for every index of the result; fill where source gives nothing.
using Source = std::function<std::optional<Dims>(const Dims&)>;
Numbers moved(const Numbers& x, const Dims& x_dims, const Dims& out_dims, const Source& source, double fill = 0) {
  Numbers out;
  Dims index(out_dims.size(), 0);
  for (int64_t n = 0; n < product(out_dims); ++n) {
    int64_t rest = n;
    for (size_t d = index.size(); d-- > 0; rest /= out_dims[d]) index[d] = rest % out_dims[d];
    const auto from = source(index);
    int64_t flat = 0;
    for (size_t d = 0; from && d < x_dims.size(); ++d) flat = flat * x_dims[d] + from->at(d);
    out.push_back(from ? x.at(static_cast<size_t>(flat)) : fill);
  }
  return out;
}

// One 2x3x4 operand in each kind of element type.
class Shapes : public ::testing::TestWithParam<Elem> {
 protected:
  const Dims dims{2, 3, 4};
  Builder b;
  const Value x = b.parameter({GetParam(), dims});

  void expect(const Value& result, const Dims& out, const Source& source, double fill = 0) {
    Numbers values = counting(24);
    if (GetParam() == Elem::Pred) {
      for (double& v : values) v = static_cast<int>(v) % 3 == 0;
    }
    ASSERT_EQ(result.type, (Type{GetParam(), out}));
    EXPECT_EQ(doubles(test::evaluate(b, {result}, {array(x.type, values)}, pjrt::test_options())[0]),
              moved(values, dims, out, source, fill));
  }
};

TEST_P(Shapes, Reshape) {
  expect(b.reshape(x, {4, 6}), {4, 6}, [](const Dims& i) {
    const int64_t flat = i[0] * 6 + i[1];
    return Dims{flat / 12, flat / 4 % 3, flat % 4};
  });
}
TEST_P(Shapes, Broadcast) {
  expect(b.broadcast(x, {5, 2, 3, 4}), {5, 2, 3, 4}, [](const Dims& i) { return Dims{i[1], i[2], i[3]}; });
}
TEST_P(Shapes, BroadcastOfADimOfSizeOne) {
  const Value row = b.slice_dim(x, 1, 2, 3);
  expect(b.broadcast(row, {2, 5, 4}), {2, 5, 4}, [](const Dims& i) { return Dims{i[0], 2, i[2]}; });
}
TEST_P(Shapes, BroadcastInDim) {
  expect(b.broadcast_in_dim(x, {2, 7, 3, 4}, {0, 2, 3}), {2, 7, 3, 4},
         [](const Dims& i) { return Dims{i[0], i[2], i[3]}; });
}
TEST_P(Shapes, Transpose) {
  expect(b.transpose(x, {2, 0, 1}), {4, 2, 3}, [](const Dims& i) { return Dims{i[1], i[2], i[0]}; });
}
TEST_P(Shapes, Slice) {
  expect(b.slice(x, {1, 0, 1}, {2, 3, 4}, {1, 2, 2}), {1, 2, 2},
         [](const Dims& i) { return Dims{1, i[1] * 2, 1 + i[2] * 2}; });
}
TEST_P(Shapes, SliceToNothing) {
  expect(b.slice_dim(x, 1, 2, 2), {2, 0, 4}, [](const Dims&) { return Dims{}; });
}
TEST_P(Shapes, DynamicSliceClamps) {
  const auto at = [&](int64_t v) { return b.constant_int(v, {Elem::S64, {}}); };
  expect(b.dynamic_slice(x, {at(0), at(-5), at(9)}, {2, 2, 3}), {2, 2, 3},
         [](const Dims& i) { return Dims{i[0], i[1], i[2] + 1}; });
}
TEST_P(Shapes, DynamicUpdateSlice) {
  const auto at = [&](int64_t v) { return b.constant_int(v, {Elem::S32, {}}); };
  const Value first = b.slice(x, {0, 0, 0}, {1, 1, 2}, {1, 1, 1});
  expect(b.dynamic_update_slice(x, first, {at(1), at(2), at(1)}), dims,
         [](const Dims& i) { return i[0] == 1 && i[1] == 2 && (i[2] == 1 || i[2] == 2) ? Dims{0, 0, i[2] - 1} : i; });
}
TEST_P(Shapes, Pad) {
  const Value one = b.constant(1, {GetParam(), {}});
  // low 1; cut 1 off the end; two between neighbours: 4 -> 1 + 4 + 3 * 2 = 11
  expect(
      b.pad(x, one, {1, 0, 1}, {0, -1, 0}, {0, 0, 2}), {3, 2, 11},
      [](const Dims& i) -> std::optional<Dims> {
        if (i[0] == 0 || i[2] == 0 || (i[2] - 1) % 3 != 0) return {};
        return Dims{i[0] - 1, i[1], (i[2] - 1) / 3};
      },
      1);
}
TEST_P(Shapes, Concatenate) {
  const Value tail = b.slice_dim(x, 1, 1, 3), none = b.slice_dim(x, 1, 0, 0);
  expect(b.concatenate({tail, none, x}, 1), {2, 5, 4},
         [](const Dims& i) { return Dims{i[0], i[1] < 2 ? i[1] + 1 : i[1] - 2, i[2]}; });
}
TEST_P(Shapes, Reverse) {
  expect(b.reverse(x, {0, 2}), dims, [](const Dims& i) { return Dims{1 - i[0], i[1], 3 - i[2]}; });
}
TEST_P(Shapes, SqueezeAndUnsqueeze) {
  const Value y = b.squeeze(b.unsqueeze(b.unsqueeze(x, 3), 0), 0);
  expect(y, {2, 3, 4, 1}, [](const Dims& i) { return Dims{i[0], i[1], i[2]}; });
}
TEST_P(Shapes, WhatChangesNothingIsNoOp) {
  for (const Value& same : {b.reshape(x, dims), b.broadcast(x, dims), b.transpose(x, {0, 1, 2}),
                            b.slice_dim(x, 1, 0, 3), b.concatenate({x}, 0), b.reverse(x, {})}) {
    EXPECT_EQ(same.name, x.name);
  }
  EXPECT_EQ(b.op_count(), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, Shapes, ::testing::Values(Elem::F32, Elem::BF16, Elem::S64, Elem::Pred),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace tpupilot::hlo
