// Running reductions along one dim: element i of the result combines elements 0 .. i of x.
#pragma once

#include <functional>

#include "hlo/builder.h"

namespace tpupilot::ops {

// `combine` is a StableHLO op with `identity` as its neutral element; in x's type.
hlo::Value scan(hlo::Builder& b, std::string_view combine, const hlo::Value& x, const hlo::Value& identity,
                int64_t dim);

// The same for a combination that is a formula: log2(n) passes over shifted copies.
using Combine = std::function<hlo::Value(const hlo::Value& later, const hlo::Value& earlier)>;
hlo::Value scan_by_steps(hlo::Builder& b, const Combine& combine, hlo::Value x, const hlo::Value& identity,
                         int64_t dim);

}  // namespace tpupilot::ops
