// The device allocator: hands out cells and unique, unreadable addresses. Takes no GIL; one small lock of its own.
#include <c10/core/CachingDeviceAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <mutex>
#include <vector>

#include "aten/cell.h"
#include "aten/recorder.h"
#include "aten/runtime.h"
#include "pjrt/host_memory.h"

namespace tpupilot::aten {
namespace {

// Addresses name storages (aliasing tests compare them); they are never dereferenced. Freed ranges return to a list by
// power-of-two size class, so the reservation lasts for ever. The same lock guards what each device holds.
using Stat = c10::CachingAllocator::Stat;
struct Usage {
  Stat bytes, storages;
};

struct ListedCell : Cell {
  ListedCell *before = nullptr, *after = nullptr;  // in the ring of live storages
};

class AddressSpace {
 public:
  AddressSpace() { ring_.before = ring_.after = &ring_; }

  void admit(ListedCell& cell) {
    const size_t size_class = class_of(cell.nbytes);
    const std::lock_guard lock(mutex_);
    cell.address = unused(size_class);
    cell.before = ring_.before;
    cell.after = &ring_;
    cell.before->after = cell.after->before = &cell;
    Usage& u = usage_[cell.device];
    u.bytes.increase(cell.nbytes);
    u.storages.increase(1);
  }

  void dismiss(const ListedCell& cell) {
    const std::lock_guard lock(mutex_);
    cell.before->after = cell.after;
    cell.after->before = cell.before;
    free_[class_of(cell.nbytes)].push_back(cell.address);
    Usage& u = usage_[cell.device];
    u.bytes.decrease(cell.nbytes);
    u.storages.decrease(1);
  }

  Cell* find(const void* address) {  // rare: a walk over all of them
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    const std::lock_guard lock(mutex_);
    for (ListedCell* cell = ring_.after; cell != &ring_; cell = cell->after) {
      const auto first = reinterpret_cast<uintptr_t>(cell->address);
      if (wanted >= first && wanted < first + std::max<size_t>(cell->nbytes, 1)) return cell;
    }
    return nullptr;
  }

  Usage usage(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    return usage_.at(device);
  }
  void reset_peak(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    usage_.at(device).bytes.reset_peak();
    usage_.at(device).storages.reset_peak();
  }
  void reset_accumulated(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    usage_.at(device).bytes.reset_accumulated();
    usage_.at(device).storages.reset_accumulated();
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
  ListedCell ring_;
};

AddressSpace& addresses() {
  static auto* space = new AddressSpace;  // outlives every storage, static destruction included
  return *space;
}

class TpuAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    auto cell = std::make_unique<ListedCell>();
    cell->nbytes = nbytes;
    cell->device = current_device();
    if (const Recorder* recorder = Recorder::current()) cell->recording = recorder->id();  // an intermediate
    addresses().admit(*cell);
    const c10::Device device(c10::kPrivateUse1, cell->device);
    void* address = cell->address;
    return {address, static_cast<Cell*>(cell.release()), &free_cell, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // the context is not the data
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "[tpu] raw memory of the device cannot be copied by address; use tensor.copy_()");
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { pjrt::return_freed_memory(); }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const Usage u = addresses().usage(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0] = stats.reserved_bytes[0] = stats.active_bytes[0] = stats.requested_bytes[0] = u.bytes;
    stats.allocation[0] = stats.active[0] = u.storages;
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

void free_cell(void* context) {
  const std::unique_ptr<ListedCell> cell(static_cast<ListedCell*>(static_cast<Cell*>(context)));
  addresses().dismiss(*cell);
}

Cell* cell_at(const void* address) { return addresses().find(address); }

size_t bytes_allocated(c10::DeviceIndex device) { return static_cast<size_t>(addresses().usage(device).bytes.current); }
size_t peak_bytes_allocated(c10::DeviceIndex device) {
  return static_cast<size_t>(addresses().usage(device).bytes.peak);
}
void reset_peak_bytes(c10::DeviceIndex device) { addresses().reset_peak(device); }

static const bool registered = [] {
  c10::SetAllocator(c10::kPrivateUse1, &the_allocator());
  return true;
}();

}  // namespace tpupilot::aten
