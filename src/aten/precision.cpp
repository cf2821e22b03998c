#include "aten/precision.h"

#include <ATen/Context.h>

#include <atomic>
#include <stdexcept>

namespace tpupilot::aten {
namespace {

struct Rehearsal {
  hlo::Passes passes = hlo::Passes::Exact;
  bool always = false;
};
std::atomic<Rehearsal> rehearsal{Rehearsal{}};

// Settings of torch.backends that contradict it make torch refuse to name one precision. They are another device's.
at::Float32MatmulPrecision torch_precision() {
  try {
    return at::globalContext().float32MatmulPrecision();
  } catch (const c10::Error&) {
    return at::Float32MatmulPrecision::HIGHEST;
  }
}

}  // namespace

hlo::Passes current_passes() {
  const Rehearsal now = rehearsal.load(std::memory_order_relaxed);
  if (now.always) return now.passes;
  switch (torch_precision()) {
    case at::Float32MatmulPrecision::MEDIUM:
      return hlo::Passes::One;
    case at::Float32MatmulPrecision::HIGH:
      return hlo::Passes::Three;
    case at::Float32MatmulPrecision::HIGHEST:
      break;
  }
  return now.passes;
}

void rehearse_passes(int passes, bool always) {
  switch (passes) {
    case 0:
      return rehearsal.store({hlo::Passes::Exact, always});
    case 1:
      return rehearsal.store({hlo::Passes::One, always});
    case 3:
      return rehearsal.store({hlo::Passes::Three, always});
    case 6:
      return rehearsal.store({hlo::Passes::Six, always});
    default:
      throw std::invalid_argument("[rehearse_passes] " + std::to_string(passes) +
                                  " is not a number of bf16 passes; one of 0 (plain f32), 1, 3, 6");
  }
}

}  // namespace tpupilot::aten
