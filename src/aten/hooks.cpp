// ATen's accelerator hooks: what torch asks about the device type as a whole.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "aten/cell.h"
#include "aten/generator.h"
#include "aten/pinned.h"
#include "aten/runtime.h"
#include "aten/storage.h"

namespace tpupilot::aten {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  void init() const override { runtime(); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return available(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return loaded(); }

  c10::DeviceIndex deviceCount() const override { return device_count(); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex d) const override { set_current_device(d); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex d) const override { return exchange_device(d); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex d) const override { return exchange_device(d); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex d) const override { return default_generator(d); }
  at::Generator getNewGenerator(c10::DeviceIndex d) const override {
    return at::make_generator<Generator>(d < 0 ? current_device() : d);
  }
  at::Device getDeviceFromPtr(void* address) const override {
    const Cell* cell = cell_at(address);
    TORCH_CHECK(cell != nullptr, "[tpu] the address belongs to no tensor of the device");
    return {c10::kPrivateUse1, cell->device};
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(storage, nbytes);
  }
};

const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);  // torch keeps it until the process ends
  return true;
}();

}  // namespace
}  // namespace tpupilot::aten
