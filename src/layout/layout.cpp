#include "layout/layout.h"

#include "layout/plan.h"

namespace tpupilot::layout {
namespace {

// Each element once and without gaps, in whatever order of dims, wherever it starts.
bool is_dense(const Layout& l) {
  const Canonical c = canonical(l);
  return !c.expanded && (c.steps.empty() || (c.steps.size() == 1 && c.steps[0].stride == 1));
}

}  // namespace

bool is_contiguous(const Layout& l) {
  if (l.numel() == 0) return true;
  if (l.offset != 0) return false;
  const Dims expected = hlo::contiguous_strides(l.sizes);
  for (size_t i = 0; i < l.sizes.size(); ++i) {
    if (l.sizes[i] != 1 && l.strides[i] != expected[i]) return false;
  }
  return true;
}

bool is_whole(const Layout& l, int64_t length) { return is_contiguous(l) && l.numel() == length; }

bool covers(const Layout& l, int64_t length) {
  if (l.numel() != length) return false;
  return length == 0 || (l.offset == 0 && is_dense(l));
}

int64_t end(const Layout& l) {
  if (l.numel() == 0) return 0;
  int64_t last = l.offset;
  for (size_t i = 0; i < l.sizes.size(); ++i) last += (l.sizes[i] - 1) * l.strides[i];
  return last + 1;
}

Overlap internal_overlap(const Layout& l) {
  if (l.numel() == 0 || is_dense(l)) return Overlap::No;
  return canonical(l).expanded ? Overlap::Yes : Overlap::TooHard;
}

}  // namespace tpupilot::layout
