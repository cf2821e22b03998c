// Strided layout algebra: how a strided view is read from, and written to, a dense one-dimensional buffer value.
// A layout's strides and offset count elements, not bytes. Everything here is a pure function of its arguments;
// errors: hlo::Error.
#pragma once

#include <optional>

#include "hlo/builder.h"

namespace tpupilot::layout {

using hlo::Dims;

struct Layout {
  Dims sizes;
  Dims strides;  // >= 0 (torch has no negative strides); 0 = expanded
  int64_t offset = 0;

  int64_t numel() const { return hlo::product(sizes); }
  bool operator==(const Layout&) const = default;
};

// Row-major, without gaps, starting at 0 (dims of size 1 may have any stride); true of every view without elements.
bool is_contiguous(const Layout& l);
// is_contiguous, and it spans the whole buffer of `length` elements: a plain upload or download.
bool is_whole(const Layout& l, int64_t length);
// Every element of the buffer belongs to the view exactly once: a write does not need the old buffer.
bool covers(const Layout& l, int64_t length);
// One past the largest element index the view touches (0 for a view without elements).
int64_t end(const Layout& l);

// Do two indices of the view name one element? The answers are those of at::MemOverlap, and so are the rules.
enum class Overlap { No, Yes, TooHard };
Overlap internal_overlap(const Layout& l);

// What of a view shapes a program, and what need not: views of one shape that lie elsewhere in a buffer of one length
// are read and written by one program if their forms are equal, with the starts as its inputs.
struct Placement {
  Dims form;
  Dims starts;  // along each axis of the buffer in which the view could lie elsewhere
};
Placement placement(const Layout& l, int64_t length);

// The view's value, of shape l.sizes. `flat` is one-dimensional. `starts`: nothing, or a 0-d value of start_elem() for
// each of placement().starts, which the program may then be given anew.
hlo::Value read(hlo::Builder& b, const hlo::Value& flat, const Layout& l, const hlo::Values& starts = {});

// The new flat value of `length` elements after `value` (shape l.sizes, the buffer's element type) was written through
// the view. `flat` is the old value; it may be empty exactly when covers(l, length). Elements that the view does not
// name keep their value. A view that overlaps itself is the caller's error to raise. `starts` as in read().
hlo::Value write(hlo::Builder& b, const hlo::Value& flat, int64_t length, const Layout& l, const hlo::Value& value,
                 const hlo::Values& starts = {});

// The element type of starts and indices in a buffer of that length.
inline hlo::Elem start_elem(int64_t length) { return length > INT32_MAX ? hlo::Elem::S64 : hlo::Elem::S32; }

// The same bytes seen as another element type: bit casts between real types of any two sizes, complex <-> real pairs.
// `flat` is one-dimensional; the byte length must divide evenly.
hlo::Value reinterpret(hlo::Builder& b, const hlo::Value& flat, hlo::Elem elem);

}  // namespace tpupilot::layout
