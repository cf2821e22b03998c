#include "aten/pinned.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_pin_memory_native.h>
#include <torch/library.h>

#include <cstdlib>
#include <map>
#include <mutex>

namespace tpupilot::aten {
namespace {

// Aligned so that an upload can hand the memory to the plugin as it is (storage.cpp). The plugin gets a reference,
// and the tensor becomes copy-on-write: who writes to it afterwards gets other pinned memory. Not locked into RAM: the
// CPU plugin transfers nothing, and PJRT offers no function for it that every plugin has.
constexpr size_t kAlignment = 64;

class Blocks {
 public:
  void* make(size_t nbytes) {
    void* address = nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, posix_memalign(&address, kAlignment, nbytes) == 0, "[tpu] no host memory for ",
                     nbytes, " pinned bytes; use smaller batches or fewer of them");
    const std::lock_guard lock(mutex_);
    sizes_.emplace(reinterpret_cast<uintptr_t>(address), nbytes);
    for (auto* bytes : {&stats_.active_bytes, &stats_.allocated_bytes}) bytes->increase(nbytes);
    for (auto* count : {&stats_.active_requests, &stats_.allocations}) count->increase(1);
    ++stats_.num_host_alloc;
    return address;
  }

  void drop(void* address) {
    {
      const std::lock_guard lock(mutex_);
      const auto it = sizes_.find(reinterpret_cast<uintptr_t>(address));
      for (auto* bytes : {&stats_.active_bytes, &stats_.allocated_bytes}) bytes->decrease(it->second);
      for (auto* count : {&stats_.active_requests, &stats_.allocations}) count->decrease(1);
      ++stats_.num_host_free;
      sizes_.erase(it);
    }
    std::free(address);
  }

  bool holds(const void* address) {
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    const std::lock_guard lock(mutex_);
    const auto after = sizes_.upper_bound(wanted);
    if (after == sizes_.begin()) return false;
    const auto& [first, nbytes] = *std::prev(after);
    return wanted < first + nbytes;
  }

  at::HostStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  template <class F>
  void for_each_stat(F&& f) {
    const std::lock_guard lock(mutex_);
    for (auto* stat : {&stats_.active_bytes, &stats_.allocated_bytes, &stats_.active_requests, &stats_.allocations}) {
      f(*stat);
    }
  }

 private:
  std::mutex mutex_;
  std::map<uintptr_t, size_t> sizes_;
  at::HostStats stats_;
};

Blocks& blocks() {
  static auto* b = new Blocks;  // outlives every tensor, static destruction included
  return *b;
}

// May run on a thread of the plugin, when the last device buffer that read the memory goes.
void free_pinned(void* address) { blocks().drop(address); }

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) return {nullptr, c10::Device(c10::kCPU)};
    void* address = blocks().make(nbytes);
    return {address, address, &free_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }

  // An upload has copied the memory, or holds a reference to it: no stream needs to be remembered.
  bool record_event(void* address, void*, c10::Stream) override { return is_pinned(address); }
  void empty_cache() override {}  // memory is freed at once
  at::HostStats get_stats() override { return blocks().stats(); }
  void reset_accumulated_stats() override {
    blocks().for_each_stat([](auto& stat) { stat.reset_accumulated(); });
  }
  void reset_peak_stats() override {
    blocks().for_each_stat([](auto& stat) { stat.reset_peak(); });
  }
};

// Core's own makes a storage that cannot be resized, which is also how torch marks memory that NumPy shares. Uploads
// must tell the two apart: NumPy may write behind torch's back, so its memory is copied.
at::Tensor pin_memory(const at::Tensor& self, std::optional<at::Device> device) {
  at::Tensor pinned = at::native::_pin_memory(self, device);
  pinned.storage().unsafeGetStorageImpl()->set_resizable(true);
  return pinned;
}

const bool registered = [] {
  at::setHostAllocator(c10::kPrivateUse1, pinned_allocator());
  return true;
}();

}  // namespace

at::HostAllocator* pinned_allocator() {
  static auto* allocator = new PinnedAllocator;
  return allocator;
}

bool is_pinned(const void* address) { return blocks().holds(address); }

TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("_pin_memory", TORCH_FN(pin_memory)); }

}  // namespace tpupilot::aten
