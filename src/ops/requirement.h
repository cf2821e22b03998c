// What a program finds wrong with the values of its arguments, where ATen raises on the CPU. The program cannot: it
// says so in one more result, the verdict, which the host reads when it next waits for the device.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hlo/builder.h"

namespace tpupilot::ops {

struct Refusal {
  enum class Kind { Index, Runtime } kind;  // IndexError or RuntimeError
  std::string text;  // ATen's own; "{}" stands for the offending value, "{at}" for its place in row-major order
};

struct Requirement {
  hlo::Value ok;        // Pred: the call is refused unless it is true everywhere
  hlo::Value offender;  // an integer of ok's shape, or empty
  Refusal refusal;
};

// S64[2 n]: for each requirement 0, or 1 + the place where it is broken; and the offender.
hlo::Value verdict(hlo::Builder& b, const std::vector<Requirement>& requirements);

// What a verdict that was read back says: the first refusal, with its number in the text. Nothing if all is well.
std::optional<Refusal> first_refusal(std::span<const Refusal> refusals, std::span<const int64_t> verdict);

}  // namespace tpupilot::ops
