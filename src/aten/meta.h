// Result shapes, dtypes, strides and error texts: PyTorch's own Meta kernels, asked on a cache miss only. Most of them
// are Python and take the GIL themselves (call without holding any lock of ours), and the first one imports a second's
// worth of modules: so their answers are kept on disk, by the call's key and torch's version.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "aten/signature.h"

namespace c10 {
class OperatorHandle;
}

namespace tpupilot::aten {

struct TensorFacts {
  hlo::Dims sizes, strides;
  c10::ScalarType dtype;
};

// One entry for each tensor that the overload returns; an undefined result has no sizes. Raises NotImplementedError if
// the overload has no Meta kernel, and whatever the Meta kernel raises (which is never kept).
std::vector<TensorFacts> run_meta(const c10::OperatorHandle& op, Arguments arguments, const Key& key);

}  // namespace tpupilot::aten
