// Which ops a view becomes, edge cases, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layout/model.h"
#include "support/run.h"

namespace tpupilot::layout {
namespace {

using hlo::Builder;
using hlo::Elem;
using hlo::Value;
using test::Array;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Case {
  std::string name;
  Layout layout;
  int64_t length;
};

std::vector<Case> common_views() {
  const Layout m = contiguous({6, 8}), t = contiguous({2, 4, 6, 8});
  return {
      {"contiguous", m, 48},
      {"x[2:5]", sliced(m, 0, 2, 5, 1), 48},
      {"flat[5:]", sliced(contiguous({48}), 0, 5, 48, 1), 48},
      {"x.t()", transposed(m, 0, 1), 48},
      {"x.permute(0,2,3,1)", transposed(transposed(t, 1, 2), 2, 3), 384},
      {"x[::2]", sliced(m, 0, 0, 6, 2), 48},
      {"flat[::2]", sliced(contiguous({48}), 0, 0, 48, 2), 48},
      {"flat[1::2] of 47", sliced(contiguous({47}), 0, 1, 47, 2), 47},
      {"x[::2] of 5 rows", sliced(contiguous({5, 8}), 0, 0, 5, 2), 40},
      {"x[:, ::3]", sliced(m, 1, 0, 8, 3), 48},
      {"x[:, 1:3]", sliced(m, 1, 1, 3, 1), 48},
      {"x[1::2, 1:7:2]", sliced(sliced(m, 0, 1, 6, 2), 1, 1, 7, 2), 48},
      {"x[1:3, :, 2:5, 1:7]", sliced(sliced(sliced(t, 0, 1, 2, 1), 2, 2, 5, 1), 3, 1, 7, 1), 384},
      {"x[:, 1]", selected(m, 1, 1), 48},
      {"x[3]", selected(m, 0, 3), 48},
      {"x[:, 2]", selected(t, 1, 2), 384},
      {"x[:, :, 4]", selected(t, 2, 4), 384},
      {"x[..., 7]", selected(t, 3, 7), 384},
      {"x.permute + slice", sliced(transposed(t, 1, 3), 1, 2, 6, 1), 384},
      {"x[1:, 1:].t()", transposed(sliced(sliced(m, 0, 1, 6, 1), 1, 1, 8, 1), 0, 1), 48},
      {"rows that straddle", {{3, 4}, {5, 1}, 3}, 20},
      {"rows at the end of an odd buffer", {{3, 2}, {5, 1}, 4}, 17},
  };
}

TEST(Forms, CommonViewsNeedNoGatherOrScatter) {
  for (const Case& c : common_views()) {
    SCOPED_TRACE(c.name);
    Builder b;
    const Value flat = b.parameter({Elem::F32, {c.length}});
    const Value value = read(b, flat, c.layout);
    const Value written = write(b, flat, c.length, c.layout, value);
    EXPECT_THAT(b.module({value, written}), AllOf(Not(HasSubstr("gather")), Not(HasSubstr("scatter"))));
    EXPECT_LE(b.op_count(), 40);
  }
}

TEST(Forms, CommonViewsHaveTheRightNumbers) {
  for (const Case& c : common_views()) {
    SCOPED_TRACE(c.name);
    std::vector<float> memory(static_cast<size_t>(c.length)), news(static_cast<size_t>(c.layout.numel()));
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
    for (size_t i = 0; i < news.size(); ++i) news[i] = -1 - static_cast<float>(i);
    Builder b;
    const Value flat = b.parameter({Elem::F32, {c.length}}), update = b.parameter({Elem::F32, c.layout.sizes});
    const hlo::Values results{read(b, flat, c.layout), write(b, flat, c.length, c.layout, update)};
    const auto values =
        test::evaluate(b, results, {Array::of(flat.type, memory), Array::of(update.type, news)}, pjrt::test_options());
    EXPECT_EQ(values[0].as<float>(), read_on_host(memory, c.layout));
    EXPECT_EQ(values[1].as<float>(), write_on_host(memory, c.layout, news));
  }
}

std::vector<std::string> op_names(const Builder& b, const hlo::Values& results) {
  std::vector<std::string> names;
  const std::string text = b.module(results);
  for (size_t at = text.find("\"stablehlo."); at != std::string::npos; at = text.find("\"stablehlo.", at + 1)) {
    names.push_back(text.substr(at + 11, text.find('"', at + 1) - at - 11));
  }
  return names;
}

std::vector<std::string> ops_of_read(const Layout& l, int64_t length) {
  Builder b;
  const Value flat = b.parameter({Elem::F32, {length}});
  return op_names(b, {read(b, flat, l)});
}

TEST(Forms, AReadIsTheCheapestThatIsRight) {
  const Layout m = contiguous({6, 8});
  using Ops = std::vector<std::string>;
  EXPECT_EQ(ops_of_read(contiguous({48}), 48), Ops{});
  EXPECT_EQ(ops_of_read(m, 48), Ops{"reshape"});
  EXPECT_EQ(ops_of_read(transposed(m, 0, 1), 48), (Ops{"reshape", "transpose"}));
  EXPECT_EQ(ops_of_read(sliced(m, 0, 2, 5, 1), 48), (Ops{"slice", "reshape"}));
  EXPECT_EQ(ops_of_read(sliced(m, 1, 1, 3, 1), 48), (Ops{"reshape", "slice"}));
  EXPECT_EQ(ops_of_read(selected(m, 1, 3), 48), (Ops{"reshape", "slice", "reshape"}));
  EXPECT_EQ(ops_of_read(expanded(unsqueezed(contiguous({8}), 0), 0, 5), 8), Ops{"broadcast_in_dim"});
  EXPECT_EQ(ops_of_read(expanded(contiguous({1}), 0, 5), 1), (Ops{"reshape", "broadcast_in_dim"}));
  EXPECT_EQ(ops_of_read(sliced(contiguous({47}), 0, 1, 47, 2), 47), Ops{"slice"});
}

TEST(Forms, AnUnfoldGathersWholeRows) {
  Builder b;
  const Layout rows = unfolded(contiguous({10, 16}), 0, 3, 1);  // [8, 16, 3]
  const Value flat = b.parameter({Elem::F32, {160}});
  const std::string text = b.module({read(b, flat, rows)});
  EXPECT_THAT(text, HasSubstr("slice_sizes = array<i64: 1, 16>"));
  EXPECT_THAT(text, HasSubstr("tensor<24x1xi32>"));
}

TEST(Forms, AWholeWriteNeedsNoOldValue) {
  Builder b;
  const Layout l = transposed(contiguous({2, 3}), 0, 1);
  const Value value = b.parameter({Elem::F32, {3, 2}});
  const Value out = write(b, {}, 6, l, value);
  EXPECT_EQ(op_names(b, {out}), (std::vector<std::string>{"transpose", "reshape"}));
}

TEST(Forms, ABlockIsWrittenByOneUpdate) {
  Builder b;
  const Layout l = sliced(contiguous({6, 8}), 1, 1, 3, 1);
  const Value flat = b.parameter({Elem::F32, {48}}), value = b.parameter({Elem::F32, {6, 2}});
  const auto names = op_names(b, {write(b, flat, 48, l, value)});
  EXPECT_EQ(names, (std::vector<std::string>{"reshape", "constant", "constant", "dynamic_update_slice", "reshape"}));
}

TEST(Edges, ViewsWithoutElements) {
  Builder b;
  const Value flat = b.parameter({Elem::F32, {4}}), none = b.parameter({Elem::F32, {0}}),
              value = b.parameter({Elem::F32, {0, 3}});
  const Layout l{{0, 3}, {3, 1}, 100};  // torch lets an empty view begin anywhere
  const hlo::Values results{read(b, flat, l), write(b, flat, 4, l, value), read(b, none, l), write(b, {}, 0, l, value)};
  const auto out = test::evaluate(
      b, results,
      {Array::of<float>(flat.type, {1, 2, 3, 4}), Array::of<float>(none.type, {}), Array::of<float>(value.type, {})});
  EXPECT_EQ(out[0].type.dims, (Dims{0, 3}));
  EXPECT_EQ(out[1].as<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(out[2].type.dims, (Dims{0, 3}));
  EXPECT_EQ(out[3].type.dims, Dims{0});
}

TEST(Edges, EveryElementTypeIsWrittenByAStridedMask) {
  for (Elem elem : {Elem::Pred, Elem::U8, Elem::S64, Elem::BF16, Elem::F64}) {
    Builder b;
    const Layout l = sliced(contiguous({5}), 0, 1, 5, 2);
    const Value flat = b.parameter({elem, {5}}), value = b.parameter({elem, {2}});
    const auto out = test::evaluate(b, {write(b, flat, 5, l, value)},
                                    {test::array(flat.type, {1, 1, 1, 0, 1}), test::array(value.type, {0, 1})});
    EXPECT_EQ(test::doubles(out[0]), (std::vector<double>{1, 0, 1, 1, 1})) << hlo::name(elem);
  }
}

TEST(Overlap, FollowsTorch) {
  EXPECT_EQ(internal_overlap(contiguous({2, 3})), Overlap::No);
  EXPECT_EQ(internal_overlap(transposed(contiguous({2, 3}), 0, 1)), Overlap::No);
  EXPECT_EQ(internal_overlap({{2, 3}, {0, 1}, 0}), Overlap::Yes);
  EXPECT_EQ(internal_overlap({{1, 3}, {0, 1}, 0}), Overlap::No);
  EXPECT_EQ(internal_overlap({{2, 3}, {6, 2}, 0}),
            Overlap::TooHard);  // distinct, but at::has_internal_overlap does not look
  EXPECT_EQ(internal_overlap({{2, 2}, {1, 1}, 0}), Overlap::TooHard);
  EXPECT_EQ(internal_overlap({{0, 2}, {0, 0}, 0}), Overlap::No);
}

template <typename F>
std::string error_of(F f) {
  try {
    f();
  } catch (const hlo::Error& e) {
    return e.what();
  }
  return "(no error)";
}

TEST(Refuses, ViewsOutsideOfTheBuffer) {
  Builder b;
  const Value flat = b.parameter({Elem::F32, {5}}), square = b.parameter({Elem::F32, {2, 2}});
  EXPECT_EQ(error_of([&] { read(b, flat, {{2, 3}, {3, 1}, 0}); }),
            "[read] sizes [2, 3], strides [3, 1], offset 0 reach to 6 in a buffer of 5 elements");
  EXPECT_EQ(error_of([&] { read(b, flat, {{2}, {-1}, 1}); }),
            "[read] sizes [2], strides [-1], offset 1: negative numbers");
  EXPECT_EQ(error_of([&] { read(b, flat, {{2}, {}, 0}); }),
            "[read] sizes [2], strides [], offset 0: as many strides as sizes are needed");
  EXPECT_EQ(error_of([&] { read(b, square, {{2}, {1}, 0}); }),
            "[read] the buffer must be one-dimensional, not tensor<2x2xf32>");
}

TEST(Refuses, WritesThatHaveNoMeaning) {
  Builder b;
  const Value flat = b.parameter({Elem::F32, {6}}), value = b.parameter({Elem::F32, {2, 2}}),
              half = b.parameter({Elem::BF16, {2, 2}});
  EXPECT_THAT(error_of([&] { write(b, flat, 6, {{2, 2}, {0, 1}, 0}, value); }), HasSubstr("names an element twice"));
  EXPECT_THAT(error_of([&] { write(b, {}, 6, {{2, 2}, {2, 1}, 0}, value); }), HasSubstr("its old value is needed"));
  EXPECT_THAT(error_of([&] { write(b, flat, 6, {{2, 3}, {3, 1}, 0}, value); }),
              HasSubstr("[write] a value of type tensor<2x2xf32>"));
  EXPECT_THAT(error_of([&] { write(b, flat, 6, {{2, 2}, {2, 1}, 0}, half); }), HasSubstr("expected tensor<6xbf16>"));
  EXPECT_THAT(error_of([&] { write(b, flat, 6, {{2, 2}, {5, 1}, 0}, value); }), HasSubstr("reach to 7"));
}

}  // namespace
}  // namespace tpupilot::layout
