// Reading and writing at computed places: what gather, scatter, index_put and their kin have in common. A place out of
// range is clamped when read and dropped when written; require_within has the call refused for it.
#pragma once

#include <string_view>

#include "ops/row.h"

namespace tpupilot::ops {

constexpr std::string_view kOutOfRange = "an index out of range raises when the host next waits for the device";
constexpr std::string_view kLabelOutOfRange = "a label out of range raises when the host next waits for the device";

// Has the call refused unless low <= index < size everywhere.
void require_within(Context& c, const Value& index, int64_t low, int64_t size, Refusal refusal);
// ATen's most common words for it; places are counted along `dim`.
Refusal out_of_bounds(Refusal::Kind kind, int64_t dim, int64_t size);

// As S64, with negative values counted from the end of a dim of `size`.
hlo::Value wrapped_index(hlo::Builder& b, const hlo::Value& index, int64_t size);

// torch.gather: x at index along dim. Both of one rank; index may be shorter than x in the other dims.
hlo::Value gather_along(hlo::Builder& b, hlo::Value x, const hlo::Value& index, int64_t dim);

// torch.scatter: x with `updates` written at index along dim; updates has index's shape. `combiner` is how an update
// meets the old element ("stablehlo.add"); empty replaces it. Narrow floats are combined in f32.
hlo::Value scatter_along(hlo::Builder& b, const hlo::Value& x, const hlo::Value& index, const hlo::Value& updates,
                         int64_t dim, std::string_view combiner = {}, bool unique = false);

// Slices of x along dim at the places of a vector: index_select. Its inverse writes the slices `updates` there.
hlo::Value take_slices(hlo::Builder& b, const hlo::Value& x, const hlo::Value& index, int64_t dim);
hlo::Value put_slices(hlo::Builder& b, const hlo::Value& x, const hlo::Value& index, const hlo::Value& updates,
                      int64_t dim, std::string_view combiner = {});

// index_put's sums of Pred are ORs.
std::string_view sum_combiner(hlo::Elem elem);

}  // namespace tpupilot::ops
