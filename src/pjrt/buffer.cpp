#include "pjrt/buffer.h"

#include <cstring>
#include <vector>

#include "pjrt/client_core.h"

namespace tpupilot::pjrt {

using detail::Status;

Buffer::Buffer(Made&& made) noexcept
    : core_(made.core),
      handle_(made.handle.release()),
      device_(made.device),
      aliases_host_(made.aliases_host),
      shape_(made.shape) {
  core_->counters.hold(static_cast<int64_t>(shape_.byte_size()));
}

Buffer::~Buffer() {
  core_->counters.release(static_cast<int64_t>(shape_.byte_size()));
  if (core_->forked()) return;  // the memory belongs to the parent's plugin; entering it here could hang
  detail::Destroyer{core_->api}(handle_);
}

namespace {

detail::Event ready_event(const PJRT_Api* api, PJRT_Buffer* handle, const char* where) {
  TPUPILOT_PJRT_ARGS(Buffer_ReadyEvent, args);
  args.buffer = handle;
  detail::check(api, api->PJRT_Buffer_ReadyEvent(&args), where);
  return {api, args.event};
}

}  // namespace

void Buffer::wait() const {
  if (ready_.load(std::memory_order_acquire)) return;
  core_->check_fork("wait");
  const Status status = ready_event(core_->api, handle_, "wait").await();
  if (!status.ok()) detail::raise(status, "wait", {&shape_, 1}, core_->counters.bytes_in_use);
  ready_.store(true, std::memory_order_release);
}

bool Buffer::is_ready() const {
  if (ready_.load(std::memory_order_acquire)) return true;
  core_->check_fork("is_ready");
  return ready_event(core_->api, handle_, "is_ready").is_ready();
}

bool Buffer::has_values() const {
  if (ready_.load(std::memory_order_acquire)) return true;
  core_->check_fork("has_values");
  const detail::Event event = ready_event(core_->api, handle_, "has_values");
  if (!event.is_ready() || !event.await().ok()) return false;
  ready_.store(true, std::memory_order_release);
  return true;
}

namespace {

struct Continuation {
  const PJRT_Api* api;
  std::function<void(std::exception_ptr)> then;
};

void run_continuation(PJRT_Error* error, void* user) {
  const std::unique_ptr<Continuation> c(static_cast<Continuation*>(user));
  std::exception_ptr thrown;
  try {
    detail::check(c->api, error, "wait");
  } catch (...) {
    thrown = std::current_exception();
  }
  c->then(std::move(thrown));
}

}  // namespace

void Buffer::on_ready(std::function<void(std::exception_ptr)> then) const {
  core_->check_fork("on_ready");
  const detail::Event event = ready_event(core_->api, handle_, "on_ready");
  auto continuation = std::make_unique<Continuation>(Continuation{core_->api, std::move(then)});
  TPUPILOT_PJRT_ARGS(Event_OnReady, args);
  args.event = event.handle();
  args.callback = run_continuation;
  args.user_arg = continuation.get();
  detail::check(core_->api, core_->api->PJRT_Event_OnReady(&args), "on_ready");
  continuation.release();  // NOLINT: run_continuation owns it now
}

bool Buffer::is_deleted() const {
  core_->check_fork("is_deleted");
  TPUPILOT_PJRT_ARGS(Buffer_IsDeleted, args);
  args.buffer = handle_;
  detail::check(core_->api, core_->api->PJRT_Buffer_IsDeleted(&args), "is_deleted");
  return args.is_deleted;
}

void* Buffer::data_pointer() const {
  if (!core_->data_pointers) return nullptr;
  TPUPILOT_PJRT_ARGS(Buffer_IsOnCpu, place);
  place.buffer = handle_;
  if (!detail::take(core_->api, core_->api->PJRT_Buffer_IsOnCpu(&place)).ok() || !place.is_on_cpu) return nullptr;
  TPUPILOT_PJRT_ARGS(Buffer_OpaqueDeviceMemoryDataPointer, data);
  data.buffer = handle_;
  const Status status = detail::take(core_->api, core_->api->PJRT_Buffer_OpaqueDeviceMemoryDataPointer(&data));
  return status.ok() ? data.device_memory_ptr : nullptr;
}

// Dense, row-major and a whole number of bytes an element, so that a memcpy is the copy.
bool Buffer::readable_in_place() const {
  if (!core_->data_pointers || is_sub_byte(shape_.element_type())) return false;
  if (shape_.rank() < 2) return true;
  TPUPILOT_PJRT_ARGS(Buffer_GetMemoryLayout, args);
  args.buffer = handle_;
  if (!detail::call_optional(core_->api, &PJRT_Api::PJRT_Buffer_GetMemoryLayout, args).ok()) return false;
  if (args.layout.type != PJRT_Buffer_MemoryLayout_Type_Tiled || args.layout.tiled.num_tiles != 0) return false;
  const size_t rank = args.layout.tiled.minor_to_major_size;
  for (size_t i = 0; i < rank; ++i) {
    if (args.layout.tiled.minor_to_major[i] != static_cast<int64_t>(rank - 1 - i)) return false;
  }
  return rank == shape_.rank();
}

const void* Buffer::host_pointer() const {
  wait();
  core_->check_fork("host_pointer");
  return readable_in_place() ? data_pointer() : nullptr;
}

namespace {

void copy_through_plugin(const PJRT_Api* api, PJRT_Buffer* handle, const Shape& shape, void* out, size_t bytes) {
  // Without a layout the plugin writes the device's own, which need not be row-major.
  std::vector<int64_t> minor_to_major(shape.rank());
  for (size_t i = 0; i < shape.rank(); ++i) minor_to_major[i] = static_cast<int64_t>(shape.rank() - 1 - i);
  PJRT_Buffer_MemoryLayout layout{};
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();

  TPUPILOT_PJRT_ARGS(Buffer_ToHostBuffer, args);
  args.src = handle;
  args.host_layout = &layout;
  args.dst = out;
  args.dst_size = bytes;
  detail::check(api, api->PJRT_Buffer_ToHostBuffer(&args), "copy_to_host");
  const Status status = detail::Event(api, args.event).await();
  if (!status.ok()) detail::raise(status, "copy_to_host");
}

}  // namespace

void Buffer::copy_to_host(void* out, size_t bytes) const {
  core_->check_fork("copy_to_host");
  if (bytes != byte_size()) {
    throw Error(Error::Code::InvalidArgument, "[copy_to_host] the target has " + std::to_string(bytes) +
                                                  " bytes, the buffer " + shape_.str() + " has " +
                                                  std::to_string(byte_size()));
  }
  wait();
  if (bytes > 0) {
    // The plugin's own copy hops to another thread: 10 to 25 us, against less than 1 for reading the pointer.
    if (const void* data = readable_in_place() ? data_pointer() : nullptr; data != nullptr) {
      std::memcpy(out, data, bytes);
    } else {
      copy_through_plugin(core_->api, handle_, shape_, out, bytes);
    }
  }
  core_->counters.host_transfers.fetch_add(1, std::memory_order_relaxed);
  core_->counters.d2h_bytes.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

std::shared_ptr<Buffer> Buffer::copy_to_device(int device) const {
  core_->check_fork("copy_to_device");
  core_->check_device(device, "copy_to_device");
  TPUPILOT_PJRT_ARGS(Buffer_CopyToDevice, args);
  args.buffer = handle_;
  args.dst_device = core_->devices[static_cast<size_t>(device)];
  const Status status = detail::call_optional(core_->api, &PJRT_Api::PJRT_Buffer_CopyToDevice, args);
  if (!status.ok()) detail::raise(status, "copy_to_device", {&shape_, 1}, core_->counters.bytes_in_use);
  return std::make_shared<Buffer>(Made{core_, {args.dst_buffer, {core_->api}}, device, shape_});
}

}  // namespace tpupilot::pjrt
