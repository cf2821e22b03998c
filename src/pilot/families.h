// The judge functions, by family; registry.cpp is the only reader.
#pragma once

#include "pilot/check.h"

namespace tpupilot::pilot {

namespace environment {
CheckResult isolated(const Context&);
CheckResult python(const Context&);
CheckResult pinned(const Context&);
CheckResult build_match(const Context&);
CheckResult backend_proof(const Context&);
CheckResult smoke(const Context&);
CheckResult settings(const Context&);
CheckResult exclusive(const Context&);
CheckResult reference_diff(const Context&);
}  // namespace environment

namespace inventory {
CheckResult op_path(const Context&);
}  // namespace inventory

namespace parity {
CheckResult inputs_equal(const Context&);
CheckResult noise_floor(const Context&);
CheckResult forward(const Context&);
CheckResult loss(const Context&);
CheckResult gradients(const Context&);
CheckResult next_step(const Context&);
CheckResult drift(const Context&);
CheckResult updates(const Context&);
CheckResult nonfinite(const Context&);
CheckResult dtype(const Context&);
CheckResult placement(const Context&);
CheckResult self_test(const Context&);
CheckResult tpu_precision(const Context&);
CheckResult first_divergence(const Context&);
}  // namespace parity

namespace operators {
CheckResult common(const Context&);
CheckResult boundary(const Context&);
}  // namespace operators

namespace checkpoint {
CheckResult round_trip(const Context&);
CheckResult resume(const Context&);
CheckResult portable(const Context&);
CheckResult crash(const Context&);
CheckResult known_good(const Context&);
}  // namespace checkpoint

namespace decision {
CheckResult sheet(const Context&);
CheckResult targets(const Context&);
CheckResult stop(const Context&);
CheckResult one_variable(const Context&);
}  // namespace decision

}  // namespace tpupilot::pilot
