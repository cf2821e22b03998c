// c10's device guard: current device, streams and events. A device has one stream, its default one; an event is the
// set of results that were pending when it was recorded, and the time.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>

#include "aten/runtime.h"

namespace tpupilot::aten {
namespace {

constexpr auto kTpu = c10::DeviceType::PrivateUse1;

struct Event {
  c10::DeviceIndex device = 0;
  std::chrono::steady_clock::time_point time;
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kTpu; }

  c10::Device exchangeDevice(c10::Device d) const override { return {kTpu, exchange_device(d.index())}; }
  c10::Device getDevice() const override { return {kTpu, current_device()}; }
  void setDevice(c10::Device d) const override { set_current_device(d.index()); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { set_current_device_unchecked(d.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

  c10::Stream getStream(c10::Device d) const override { return default_stream(d); }
  c10::Stream getDefaultStream(c10::Device d) const override { return default_stream(d); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return default_stream(d); }
  c10::Stream getNewStream(c10::Device d, int) const override { return default_stream(d); }
  c10::Stream exchangeStream(c10::Stream s) const override { return s; }
  bool queryStream(const c10::Stream& s) const override { return idle(s.device_index()); }
  void synchronizeStream(const c10::Stream& s) const override { synchronize(s.device_index()); }
  void synchronizeDevice(c10::DeviceIndex d) const override { synchronize(d); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    // Eager programs are enqueued in order, so that the device being idle implies all that went before.
    synchronize(stream.device_index());
    *static_cast<Event*>(*event) = {stream.device_index(), std::chrono::steady_clock::now()};
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    const auto span = static_cast<Event*>(end)->time - static_cast<Event*>(start)->time;
    return std::chrono::duration<double, std::milli>(span).count();
  }

 private:
  static c10::Stream default_stream(c10::Device d) {
    return c10::Stream(c10::Stream::DEFAULT, d.has_index() ? d : c10::Device(kTpu, current_device()));
  }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace tpupilot::aten
