// Random chains of view ops over small bases, read and written by the plugin and by the host model.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "layout/model.h"
#include "support/run.h"

namespace tpupilot::layout {
namespace {

using hlo::Builder;
using hlo::Elem;
using hlo::Value;
using test::Array;

constexpr int kModules = 24, kViewsOfAModule = 50;  // as many again are written
constexpr int64_t kLongestBase = 64, kLargestView = 192;

class Walk {
 public:
  explicit Walk(uint32_t seed) : engine_(seed) {}

  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }

  Layout view(int64_t length) {
    Layout l = base(length);
    for (int64_t steps = between(0, 5); steps > 0; --steps) {
      const Layout next = stepped(l, length);
      if (next.numel() <= kLargestView && next.sizes.size() <= 6) l = next;
    }
    return l;
  }

  // A view of the same form somewhere else, if a few tries find one; else `l`.
  Layout elsewhere(Layout l, int64_t length) {
    const Dims form = placement(l, length).form;
    for (int tries = 0; tries < 20; ++tries) {
      Layout moved = l;
      moved.offset = below(length);
      if (end(moved) <= length && placement(moved, length).form == form) return moved;
    }
    return l;
  }

 private:
  Layout base(int64_t length) {  // some factorisation of a part of the buffer
    Dims sizes;
    for (int64_t left = length; left > 1 && sizes.size() < 4;) {
      sizes.push_back(between(1, std::min<int64_t>(left, 8)));
      left /= sizes.back();
    }
    return contiguous(sizes);
  }

  Layout stepped(const Layout& l, int64_t length) {
    const int64_t op = below(8);
    if (op == 0) return anywhere(length);
    if (op == 1) return unsqueezed(l, static_cast<size_t>(below(static_cast<int64_t>(l.sizes.size()) + 1)));
    if (l.sizes.empty()) return l;
    const auto dim = static_cast<size_t>(below(static_cast<int64_t>(l.sizes.size())));
    const int64_t size = l.sizes[dim];
    switch (op) {
      case 2:
        if (size > 0) return selected(l, dim, below(size));
        return l;
      case 3:
        if (size == 1) return expanded(l, dim, between(0, 4));
        return l;
      case 4:
        if (size > 1) return unfolded(l, dim, between(1, size), between(1, 2));
        return l;
      case 5:
        return transposed(l, dim, static_cast<size_t>(below(static_cast<int64_t>(l.sizes.size()))));
      default: {
        const int64_t start = between(0, size), limit = between(start, size);
        return sliced(l, dim, start, limit, between(1, 3));
      }
    }
  }

  Layout anywhere(int64_t length) {  // as_strided
    Layout l;
    l.offset = below(length);
    int64_t reach = l.offset;
    for (int64_t rank = between(0, 4); rank > 0; --rank) {
      const int64_t stride = between(0, 9), most = stride == 0 ? 3 : (length - 1 - reach) / stride + 1;
      l.strides.push_back(stride);
      l.sizes.push_back(between(1, std::min<int64_t>(most, 5)));
      reach += (l.sizes.back() - 1) * stride;
    }
    return l;
  }

  std::mt19937 engine_;
};

std::vector<float> counting(int64_t n, float first) {
  std::vector<float> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::string text_of(const Layout& l, int64_t length) {
  return ::testing::PrintToString(l.sizes) + " strides " + ::testing::PrintToString(l.strides) + " offset " +
         std::to_string(l.offset) + " of " + std::to_string(length);
}

// Start inputs of a program, and what they are given for a view.
hlo::Values start_parameters(Builder& b, const Layout& l, int64_t length, std::vector<Array>& inputs) {
  hlo::Values starts;
  for (const int64_t start : placement(l, length).starts) {
    starts.push_back(b.parameter({start_elem(length), {}}));
    inputs.push_back(Array::of(starts.back().type, std::vector<int32_t>{static_cast<int32_t>(start)}));
  }
  return starts;
}

TEST(RandomWalk, Reads) {
  Walk walk(20261201);
  for (int module = 0; module < kModules; ++module) {
    const int64_t length = walk.between(1, kLongestBase);
    const std::vector<float> memory = counting(length, 1);
    Builder b;
    const Value flat = b.parameter({Elem::F32, {length}});
    std::vector<Layout> views;
    hlo::Values results;
    for (int i = 0; i < kViewsOfAModule; ++i) {
      views.push_back(walk.view(length));
      results.push_back(read(b, flat, views.back()));
      ASSERT_EQ(results.back().dims(), views.back().sizes);
    }
    const auto values = test::evaluate(b, results, {Array::of(flat.type, memory)}, pjrt::test_options());
    for (size_t i = 0; i < views.size(); ++i) {
      EXPECT_EQ(values[i].as<float>(), read_on_host(memory, views[i])) << text_of(views[i], length);
    }
  }
}

TEST(RandomWalk, Writes) {
  Walk walk(1202621);
  for (int module = 0; module < kModules; ++module) {
    const int64_t length = walk.between(1, kLongestBase);
    const std::vector<float> memory = counting(length, 1), news = counting(kLargestView, -1000);
    Builder b;
    const Value flat = b.parameter({Elem::F32, {length}}), pool = b.parameter({Elem::F32, {kLargestView}});
    std::vector<Layout> views;
    hlo::Values results;
    while (views.size() < kViewsOfAModule) {
      const Layout l = walk.view(length);
      if (overlaps_on_host(l)) continue;
      views.push_back(l);
      const Value update = b.reshape(b.slice_dim(pool, 0, 0, l.numel()), l.sizes);
      results.push_back(write(b, covers(l, length) ? Value{} : flat, length, l, update));
      ASSERT_EQ(results.back().dims(), Dims{length});
    }
    const auto values =
        test::evaluate(b, results, {Array::of(flat.type, memory), Array::of(pool.type, news)}, pjrt::test_options());
    for (size_t i = 0; i < views.size(); ++i) {
      EXPECT_EQ(values[i].as<float>(), write_on_host(memory, views[i], news)) << text_of(views[i], length);
    }
  }
}

TEST(RandomWalk, AProgramServesAllViewsOfItsForm) {
  Walk walk(3);
  int moved = 0;
  for (int module = 0; module < kModules; ++module) {
    const int64_t length = walk.between(8, kLongestBase);
    const std::vector<float> memory = counting(length, 1), news = counting(kLargestView, -1000);
    Builder b;
    const Value flat = b.parameter({Elem::F32, {length}}), pool = b.parameter({Elem::F32, {kLargestView}});
    std::vector<Array> inputs{Array::of(flat.type, memory), Array::of(pool.type, news)};
    std::vector<Layout> views;
    hlo::Values results;  // a read and a write of each
    while (views.size() < kViewsOfAModule / 2) {
      const Layout l = walk.view(length);
      if (overlaps_on_host(l) || covers(l, length)) continue;
      const Layout made_for = walk.elsewhere(l, length);
      moved += made_for == l ? 0 : 1;
      views.push_back(l);
      const hlo::Values starts = start_parameters(b, l, length, inputs);
      const Value update = b.reshape(b.slice_dim(pool, 0, 0, l.numel()), l.sizes);
      results.push_back(read(b, flat, made_for, starts));
      results.push_back(write(b, flat, length, made_for, update, starts));
    }
    const auto values = test::evaluate(b, results, inputs, pjrt::test_options());
    for (size_t i = 0; i < views.size(); ++i) {
      EXPECT_EQ(values[2 * i].as<float>(), read_on_host(memory, views[i])) << text_of(views[i], length);
      EXPECT_EQ(values[2 * i + 1].as<float>(), write_on_host(memory, views[i], news)) << text_of(views[i], length);
    }
  }
  EXPECT_GT(moved, 200);
}

TEST(RandomWalk, TheQueriesAgreeWithTheModel) {
  Walk walk(7);
  for (int i = 0; i < 3000; ++i) {
    const int64_t length = walk.between(1, 24);
    const Layout l = walk.view(length);
    const std::vector<int64_t> named = elements(l);
    std::set<int64_t> distinct(named.begin(), named.end());
    EXPECT_EQ(end(l), named.empty() ? 0 : *distinct.rbegin() + 1) << text_of(l, length);
    EXPECT_EQ(covers(l, length), named.size() == distinct.size() && static_cast<int64_t>(named.size()) == length)
        << text_of(l, length);
    EXPECT_EQ(is_contiguous(l), named == elements(contiguous(l.sizes))) << text_of(l, length);
    const Overlap answer = internal_overlap(l);
    EXPECT_TRUE(answer == Overlap::TooHard || (answer == Overlap::Yes) == overlaps_on_host(l)) << text_of(l, length);
  }
}

}  // namespace
}  // namespace tpupilot::layout
