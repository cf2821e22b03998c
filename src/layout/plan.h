// How a layout is laid over a dense axis, shared by read and write. Private to this room.
#pragma once

#include "layout/layout.h"

namespace tpupilot::layout {

struct Step {  // one dim of a view
  int64_t size;
  int64_t stride;
  bool operator==(const Step&) const = default;
};

// A layout brought into the order of memory: dims of size 1 and expanded dims left out, the rest sorted by descending
// stride, neighbours that walk memory as one dim merged into it.
struct Canonical {
  std::vector<Step> steps;  // sizes > 1, strides > 0
  Dims sorted_sizes;        // of the dims before merging: what `steps` unfolds to
  Dims sorted_dims;         // which dim of the layout each of them is
  bool expanded = false;    // some dim of size > 1 has stride 0
};
Canonical canonical(const Layout& l);

// Distance from the first to one past the last element.
int64_t extent(const std::vector<Step>& steps);

struct Axis {  // start, start + step, ... of an axis of `length`, `count` of them
  int64_t length, start, step, count;

  int64_t span() const { return (count - 1) * step + 1; }
  bool has_room() const { return span() < length; }  // it could start elsewhere
};

// `steps` at `offset` of an axis of `length`, cut into axes of which the view takes a (strided) block. What cannot be
// cut that way is left over: `rest` describes the last axis, which is not among `axes` then.
struct Plan {
  enum class Rest {
    None,
    Misaligned,   // the rows of rest_steps[0] do not begin at multiples of a divisor of the length
    Interleaved,  // the rows of rest_steps[0] reach into each other
  };
  std::vector<Axis> axes;
  Rest rest = Rest::None;
  std::vector<Step> rest_steps;
  int64_t rest_offset = 0;
  int64_t rest_length = 0;
};
Plan plan(std::vector<Step> steps, int64_t offset, int64_t length);

inline Axis whole_axis(int64_t length) { return {length, 0, 1, length}; }
std::vector<Axis> whole_axes(const Dims& dims);
Dims lengths_of(const std::vector<Axis>& axes);

// The block of `v` that the axes, one a dim, name. `starts`: nothing, or where it starts along each axis with room.
hlo::Value read_block(hlo::Builder& b, const hlo::Value& v, const std::vector<Axis>& axes, const hlo::Values& starts);
// One start a dim, as dynamic slices take them.
hlo::Values starts_of_all(hlo::Builder& b, const std::vector<Axis>& axes, const hlo::Values& starts);

// The index, in units of `unit`, of each element that `steps` (one at least) names; s32 where it fits; shape
// [product of sizes, 1].
hlo::Value flat_indices(hlo::Builder& b, const std::vector<Step>& steps, int64_t offset, int64_t unit, int64_t length);

// Throws hlo::Error unless `flat` is one-dimensional and the view lies inside `length`.
void check_bounds(const char* function, const Layout& l, int64_t length);
std::string described(const Layout& l);

}  // namespace tpupilot::layout
