// Inside this room only: has this process been forked since? One load, so that every call can ask.
#pragma once

#include <atomic>
#include <cstdint>

namespace tpupilot::pjrt::detail {

// Counts the forks between the first process and this one, from watch_forks() on.
extern std::atomic<uint32_t> fork_generation;

void watch_forks();  // idempotent; any thread

}  // namespace tpupilot::pjrt::detail
