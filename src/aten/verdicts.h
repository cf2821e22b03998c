// Verdicts of programs on their arguments (ops/requirement.h) that the host has not looked at. Any thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "aten/cell.h"
#include "ops/requirement.h"

namespace tpupilot::aten {

using Refusals = std::shared_ptr<const std::vector<ops::Refusal>>;

// Those of the requirements; null if there are none.
Refusals refusals_of(const std::vector<ops::Requirement>& requirements);

// `verdict` is a result of a program that was just enqueued. In debug mode it is waited for, and a refusal raised.
void note_verdict(BufferRef verdict, c10::DeviceIndex device, Refusals refusals);

// Waits for the device's verdicts, forgets them, and raises the first refusal among them.
void raise_refusal(c10::DeviceIndex device);

}  // namespace tpupilot::aten
