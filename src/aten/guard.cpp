// c10's device guard: current device, streams and events. A device has one queue; its streams are names for that queue,
// so that asking or waiting for one means all of the device's work.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <utility>

#include "aten/element.h"
#include "aten/errors.h"
#include "aten/event.h"
#include "aten/runtime.h"

namespace tpupilot::aten {
namespace {

constexpr auto kTpu = c10::DeviceType::PrivateUse1;

struct Event {
  QueuePointRef point;
};
const QueuePointRef& point_of(void* event) { return static_cast<Event*>(event)->point; }

// This thread's current stream of each device. 0 is the default stream.
thread_local std::array<c10::StreamId, 64> t_streams{};

c10::Stream stream_of(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kTpu, device), id);
}
c10::DeviceIndex index_of(c10::Device d) { return d.has_index() ? d.index() : current_device(); }

c10::Stream new_stream(c10::Device d) {
  static std::atomic<c10::StreamId> last{0};
  const c10::DeviceIndex index = index_of(d);
  check_device(index);
  return stream_of(index, ++last);
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kTpu; }

  c10::Device exchangeDevice(c10::Device d) const override { return {kTpu, exchange_device(d.index())}; }
  c10::Device getDevice() const override { return {kTpu, current_device()}; }
  void setDevice(c10::Device d) const override { set_current_device(d.index()); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { set_current_device_unchecked(d.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

  c10::Stream getStream(c10::Device d) const override { return stream_of(index_of(d), t_streams.at(index_of(d))); }
  c10::Stream getDefaultStream(c10::Device d) const override { return stream_of(index_of(d), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return new_stream(d); }
  c10::Stream getNewStream(c10::Device d, int) const override { return new_stream(d); }
  c10::Stream exchangeStream(c10::Stream s) const override {
    check_device(s.device_index());
    return stream_of(s.device_index(), std::exchange(t_streams.at(s.device_index()), s.id()));
  }
  void* getStreamNativeHandle(c10::Stream) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "[tpu] a stream has no native handle: PJRT has no streams that one could name");
  }
  bool queryStream(const c10::Stream& s) const override { return idle(s.device_index()); }
  void synchronizeStream(const c10::Stream& s) const override { synchronize(s.device_index()); }
  void synchronizeDevice(c10::DeviceIndex d) const override { synchronize(d); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    QueuePointRef point = translated("Event.record", [&] { return record_point(stream.device_index()); });
    if (*event == nullptr) *event = new Event;
    static_cast<Event*>(*event)->point = std::move(point);
  }
  void block(void* event, const c10::Stream& stream) const override {
    follow_point(stream.device_index(), point_of(event));
  }
  bool queryEvent(void* event) const override {
    if (point_of(event)->reached()) return true;
    check_not_forked();
    return false;
  }
  void synchronizeEvent(void* event) const override {
    translated("Event.synchronize", [&] {
      if (const std::exception_ptr error = point_of(event)->wait()) std::rethrow_exception(error);
    });
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    const auto span = point_of(end)->time() - point_of(start)->time();
    return std::chrono::duration<double, std::milli>(span).count();
  }

  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    auto& types = capability.capability_data.supported_scalar_types;
#define TPUPILOT_HAS(_, name) types.has_##name = has_elem(c10::ScalarType::name);
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(TPUPILOT_HAS)
#undef TPUPILOT_HAS
    return capability;
  }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace tpupilot::aten
