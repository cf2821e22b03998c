#include "pjrt/host_call.h"

#include <xla/ffi/api/c_api.h>
#include <xla/pjrt/c/pjrt_c_api_ffi_extension.h>

#include <exception>
#include <new>

#include "pjrt/client_core.h"

namespace tpupilot::pjrt {
namespace {

// XLA's numbers of element types differ from those of PJRT above F64.
ElementType element_type(XLA_FFI_DataType type) {
  switch (type) {
    case XLA_FFI_DataType_BF16:
      return ElementType::BF16;
    case XLA_FFI_DataType_C64:
      return ElementType::C64;
    case XLA_FFI_DataType_C128:
      return ElementType::C128;
    default:
      return type <= XLA_FFI_DataType_F64 ? static_cast<ElementType>(type) : ElementType::INVALID;
  }
}

HostArray array_of(const void* argument) {
  const auto& buffer = *static_cast<const XLA_FFI_Buffer*>(argument);
  return {element_type(buffer.dtype), {buffer.dims, static_cast<size_t>(buffer.rank)}, buffer.data};
}

HostCall read(const XLA_FFI_CallFrame& frame) {
  HostCall call;
  for (int64_t i = 0; i < frame.args.size; ++i) call.operands.push_back(array_of(frame.args.args[i]));
  for (int64_t i = 0; i < frame.rets.size; ++i) call.results.push_back(array_of(frame.rets.rets[i]));
  for (int64_t i = 0; i < frame.attrs.size; ++i) {
    if (frame.attrs.types[i] != XLA_FFI_AttrType_SCALAR) continue;
    const auto& scalar = *static_cast<const XLA_FFI_Scalar*>(frame.attrs.attrs[i]);
    if (scalar.dtype != XLA_FFI_DataType_S64) continue;
    const XLA_FFI_ByteSpan& name = *frame.attrs.names[i];
    call.integers.emplace(std::string(name.ptr, name.len), *static_cast<const int64_t*>(scalar.value));
  }
  return call;
}

// The plugin asks once, when the function is registered, which API it was built for, and takes no function of a newer
// one than its own. What is read here is in all versions 0.x: the answer is the plugin's own version, or the first.
bool answers_metadata(const XLA_FFI_CallFrame& frame) {
  for (XLA_FFI_Extension_Base* e = frame.extension_start; e != nullptr; e = e->next) {
    if (e->type != XLA_FFI_Extension_Metadata) continue;
    XLA_FFI_Metadata& metadata = *reinterpret_cast<XLA_FFI_Metadata_Extension*>(e)->metadata;
    metadata.api_version.major_version = XLA_FFI_API_MAJOR;
    metadata.api_version.minor_version = frame.api != nullptr ? frame.api->api_version.minor_version : 1;
    metadata.traits = 0;
    return true;
  }
  return false;
}

XLA_FFI_Error* error_of(const XLA_FFI_CallFrame& frame, Error::Code code, const char* message) {
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = message;
  args.errc = static_cast<XLA_FFI_Error_Code>(code);
  return frame.api->XLA_FFI_Error_Create(&args);
}

const PJRT_FFI_Extension* ffi_of(const PJRT_Api* api) {
  for (const PJRT_Extension_Base* e = api->extension_start; e != nullptr; e = e->next) {
    if (e->type == PJRT_Extension_Type_FFI) return reinterpret_cast<const PJRT_FFI_Extension*>(e);
  }
  return nullptr;
}

}  // namespace

int64_t HostCall::integer(std::string_view name) const {
  if (const auto found = integers.find(name); found != integers.end()) return found->second;
  throw Error(Error::Code::InvalidArgument,
              "[HostCall::integer] the program gives no integer '" + std::string(name) + "' in backend_config");
}

XLA_FFI_Error* detail::handle(XLA_FFI_CallFrame* frame, HostFunction function) noexcept {
  if (answers_metadata(*frame) || frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return nullptr;
  try {
    function(read(*frame));
    return nullptr;
  } catch (const Error& error) {
    return error_of(*frame, error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return error_of(*frame, Error::Code::ResourceExhausted, "the host is out of memory");
  } catch (const std::exception& error) {
    return error_of(*frame, Error::Code::Internal, error.what());
  } catch (...) {
    return error_of(*frame, Error::Code::Internal, "an exception that is no std::exception");
  }
}

bool Client::register_host_call(const std::string& target, HostHandler handler) {
  constexpr const char* kWhere = "Client::register_host_call";
  core_->check_fork(kWhere);
  const PJRT_FFI_Extension* ffi = ffi_of(core_->api);
  if (ffi == nullptr || ffi->register_handler == nullptr) return false;
  // No traits: their enum has no name for that. NOLINTNEXTLINE(bugprone-invalid-enum-default-initialization)
  PJRT_FFI_Register_Handler_Args args{};
  args.struct_size = PJRT_FFI_Register_Handler_Args_STRUCT_SIZE;
  args.target_name = target.data();
  args.target_name_size = target.size();
  args.handler = reinterpret_cast<void*>(handler);
  args.platform_name = core_->platform_name.data();
  args.platform_name_size = core_->platform_name.size();
  detail::check(core_->api, ffi->register_handler(&args), kWhere);
  return true;
}

}  // namespace tpupilot::pjrt
