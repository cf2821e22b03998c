// Pinned host memory: CPU tensors that pin_memory() and DataLoader(pin_memory=True) make for the device.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace tpupilot::aten {

at::HostAllocator* pinned_allocator();
bool is_pinned(const void* address);

}  // namespace tpupilot::aten
