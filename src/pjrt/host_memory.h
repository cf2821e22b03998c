// Freed memory of this process, where XLA's CPU client has its buffers: it takes them from malloc and gives them back
// at once. What malloc returns to the system costs a page fault for each 4 KiB when the next tensor needs it.
#pragma once

namespace tpupilot::pjrt {

// From now on malloc keeps what is freed in blocks of less than 32 MiB (its limit) for the next tensors, as a caching
// allocator does. Nothing happens where the C library is not glibc, or where the environment sets malloc's thresholds.
void keep_freed_memory();

// Gives freed memory back to the system.
void return_freed_memory();

}  // namespace tpupilot::pjrt
