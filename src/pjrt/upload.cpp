// Client: from host memory to a device.
#include "pjrt/client_core.h"

namespace tpupilot::pjrt {

using detail::ClientCore;
using detail::Status;

namespace {

struct Upload {
  detail::Owned<PJRT_Buffer> buffer;
  PJRT_Event* done_with_host = nullptr;  // owned by the receiver of this
};

Shape checked_shape(const ClientCore& core, const void* data, ElementType type, std::span<const int64_t> dims,
                    int device, const char* where) {
  core.check_fork(where);
  core.check_device(device, where);
  Shape shape(type, dims);
  const size_t one = byte_size(type);
  if (one == 0) {  // the plugin would end the process
    throw Error(Error::Code::InvalidArgument, std::string("[") + where + "] element type " + std::string(name(type)) +
                                                  " (" + std::to_string(static_cast<int>(type)) +
                                                  ") has no values on the host");
  }
  if (data == nullptr && shape.byte_size() > 0) {
    throw Error(Error::Code::InvalidArgument, std::string("[") + where + "] no data for " + shape.str());
  }
  return shape;
}

Upload upload(ClientCore& core, const void* data, const Shape& shape, int device, PJRT_HostBufferSemantics semantics,
              const char* where) {
  static const char nothing = 0;
  TPUPILOT_PJRT_ARGS(Client_BufferFromHostBuffer, args);
  args.client = core.client;
  args.data = data != nullptr ? data : &nothing;
  args.type = static_cast<PJRT_Buffer_Type>(shape.element_type());
  args.dims = shape.dims().data();
  args.num_dims = shape.rank();
  args.host_buffer_semantics = semantics;
  args.device = core.devices[static_cast<size_t>(device)];
  if (PJRT_Error* error = core.api->PJRT_Client_BufferFromHostBuffer(&args); error != nullptr)
    detail::raise(detail::take(core.api, error), where, {&shape, 1}, core.counters.bytes_in_use);
  core.counters.host_transfers.fetch_add(1, std::memory_order_relaxed);
  core.counters.h2d_bytes.fetch_add(static_cast<int64_t>(shape.byte_size()), std::memory_order_relaxed);
  return {{args.buffer, {core.api}}, args.done_with_host_buffer};
}

// Keeps the caller's memory until the plugin is done with it.
struct Hold {
  const PJRT_Api* api;
  std::shared_ptr<void> memory;
};

void let_go(PJRT_Error* error, void* user) {
  const std::unique_ptr<Hold> hold(static_cast<Hold*>(user));
  detail::take(hold->api, error);  // says nothing of use: a failed transfer shows in the buffer's own event
}

bool reads_in_place(const ClientCore& core, PJRT_Buffer* handle, const void* data) {
  if (!core.data_pointers) return false;
  TPUPILOT_PJRT_ARGS(Buffer_IsOnCpu, place);
  place.buffer = handle;
  if (!detail::take(core.api, core.api->PJRT_Buffer_IsOnCpu(&place)).ok() || !place.is_on_cpu) return false;
  TPUPILOT_PJRT_ARGS(Buffer_OpaqueDeviceMemoryDataPointer, pointer);
  pointer.buffer = handle;
  const Status status = detail::take(core.api, core.api->PJRT_Buffer_OpaqueDeviceMemoryDataPointer(&pointer));
  return status.ok() && pointer.device_memory_ptr == data;
}

}  // namespace

std::shared_ptr<Buffer> Client::from_host(const void* data, ElementType type, std::span<const int64_t> dims,
                                          int device) {
  const Shape shape = checked_shape(*core_, data, type, dims, device, "from_host");
  Upload made = upload(*core_, data, shape, device, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall, "from_host");
  const detail::Event done(core_->api, made.done_with_host);
  return std::make_shared<Buffer>(Buffer::Made{core_, std::move(made.buffer), device, shape});
}

std::shared_ptr<Buffer> Client::from_host_zero_copy(const void* data, ElementType type, std::span<const int64_t> dims,
                                                    int device, std::shared_ptr<void> keep_alive) {
  constexpr const char* kWhere = "from_host_zero_copy";
  const Shape shape = checked_shape(*core_, data, type, dims, device, kWhere);
  if (shape.byte_size() == 0) return from_host(data, type, dims, device);

  auto hold = std::make_unique<Hold>(Hold{core_->api, std::move(keep_alive)});
  Upload made = upload(*core_, data, shape, device, PJRT_HostBufferSemantics_kImmutableZeroCopy, kWhere);
  const detail::Event done(core_->api, made.done_with_host);
  const bool aliases = reads_in_place(*core_, made.buffer.get(), data);

  TPUPILOT_PJRT_ARGS(Event_OnReady, on_ready);
  on_ready.event = made.done_with_host;
  on_ready.callback = let_go;
  on_ready.user_arg = hold.get();
  detail::check(core_->api, core_->api->PJRT_Event_OnReady(&on_ready), kWhere);
  hold.release();  // NOLINT: let_go owns it now

  if (aliases) core_->counters.zero_copy_uploads.fetch_add(1, std::memory_order_relaxed);
  return std::make_shared<Buffer>(Buffer::Made{core_, std::move(made.buffer), device, shape, aliases});
}

}  // namespace tpupilot::pjrt
