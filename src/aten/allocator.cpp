// The device allocator: hands out cells and unique, unreadable addresses. Takes no GIL; one small lock of its own.
#include <c10/core/CachingDeviceAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <vector>

#include "aten/cell.h"
#include "aten/recorder.h"
#include "aten/runtime.h"

namespace tpupilot::aten {
namespace {

// Addresses name storages (aliasing tests compare them); they are never dereferenced. Freed ranges return to a list by
// power-of-two size class, so the reservation lasts for ever. The same lock guards what each device holds.
struct Usage {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0, count = 0;  // bytes; count: live storages
};

class AddressSpace {
 public:
  void* take(size_t nbytes, c10::DeviceIndex device) {
    const size_t size_class = class_of(nbytes);
    const std::lock_guard lock(mutex_);
    void* address = unused(size_class);
    Usage& u = usage_[device];
    u.current += static_cast<int64_t>(nbytes);
    u.allocated += static_cast<int64_t>(nbytes);
    u.peak = std::max(u.peak, u.current);
    ++u.count;
    return address;
  }

  void give_back(void* address, size_t nbytes, c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    free_[class_of(nbytes)].push_back(address);
    Usage& u = usage_[device];
    u.current -= static_cast<int64_t>(nbytes);
    u.freed += static_cast<int64_t>(nbytes);
    --u.count;
  }

  Usage usage(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    return usage_.at(device);
  }
  void reset_peak(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    usage_.at(device).peak = usage_.at(device).current;
  }
  void reset_accumulated(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    usage_.at(device).allocated = usage_.at(device).freed = 0;
  }

 private:
  static constexpr size_t kReserved = size_t{1} << 45;  // 32 TiB
  static size_t class_of(size_t nbytes) { return nbytes <= 64 ? 6 : std::bit_width(nbytes - 1); }

  void* unused(size_t size_class) {
    auto& free = free_[size_class];
    if (!free.empty()) {
      void* address = free.back();
      free.pop_back();
      return address;
    }
    TORCH_CHECK_WITH(OutOfMemoryError, size_class < 45 && next_ + (size_t{1} << size_class) <= kReserved,
                     "[tpu] the device is out of memory: a tensor of more than ", size_t{1} << (size_class - 1),
                     " bytes does not fit into what is left of ", kReserved,
                     " bytes of addresses. Free tensors, or use a smaller batch.");
    void* address = base_ + next_;
    next_ += size_t{1} << size_class;
    return address;
  }

  static std::byte* reserve() {
    void* base = mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(base != MAP_FAILED, "[tpu] cannot reserve ", kReserved,
                " bytes of address space; raise the limit on virtual memory (ulimit -v)");
    return static_cast<std::byte*>(base);
  }

  std::mutex mutex_;
  std::byte* base_ = reserve();
  size_t next_ = 64;
  std::array<std::vector<void*>, 64> free_;
  std::array<Usage, 64> usage_;
};

AddressSpace& addresses() {
  static auto* space = new AddressSpace;  // outlives every storage, static destruction included
  return *space;
}

struct AddressedCell : Cell {
  void* address = nullptr;
};

void free_cell(void* context) {
  std::unique_ptr<AddressedCell> cell(static_cast<AddressedCell*>(static_cast<Cell*>(context)));
  addresses().give_back(cell->address, cell->nbytes, cell->device);
}

class TpuAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    auto cell = std::make_unique<AddressedCell>();
    cell->nbytes = nbytes;
    cell->device = current_device();
    if (const Recorder* recorder = Recorder::current()) cell->recording = recorder->id();  // an intermediate
    cell->address = addresses().take(nbytes, cell->device);
    const c10::Device device(c10::kPrivateUse1, cell->device);
    void* address = cell->address;
    return {address, static_cast<Cell*>(cell.release()), &free_cell, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // the context is not the data
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "[tpu] raw memory of the device cannot be copied by address; use tensor.copy_()");
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}  // the plugin's allocator keeps no cache that we could empty
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const Usage u = addresses().usage(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes[0], &stats.reserved_bytes[0], &stats.active_bytes[0]}) {
      bytes->current = u.current;
      bytes->peak = u.peak;
      bytes->allocated = u.allocated;
      bytes->freed = u.freed;
    }
    stats.allocation[0].current = u.count;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override { addresses().reset_accumulated(device); }
  void resetPeakStats(c10::DeviceIndex device) override { reset_peak_bytes(device); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override { return memory_info(device); }
};

TpuAllocator& the_allocator() {
  static auto* a = new TpuAllocator;
  return *a;
}

}  // namespace

c10::Allocator* allocator() { return &the_allocator(); }

size_t bytes_allocated(c10::DeviceIndex device) { return static_cast<size_t>(addresses().usage(device).current); }

size_t peak_bytes_allocated(c10::DeviceIndex device) { return static_cast<size_t>(addresses().usage(device).peak); }
void reset_peak_bytes(c10::DeviceIndex device) { addresses().reset_peak(device); }

static const bool registered = [] {
  c10::SetAllocator(c10::kPrivateUse1, &the_allocator());
  return true;
}();

}  // namespace tpupilot::aten
