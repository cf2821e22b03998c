#include "aten/closed_ops.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <atomic>

#include "aten/cell.h"
#include "aten/counters.h"
#include "aten/element.h"
#include "aten/runtime.h"
#include "aten/storage.h"

namespace tpupilot::aten {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Device device_or_current(std::optional<at::Device> device) {
  return device && device->has_index() ? *device : at::Device(c10::kPrivateUse1, current_device());
}

at::ScalarType checked_dtype(std::optional<at::ScalarType> dtype) {
  const auto type = dtype.value_or(at::get_default_dtype_as_scalartype());
  elem_of(type);  // raises for a dtype that the device lacks
  return type;
}

// ---- factories ----
at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided, "[tpu] tensors of layout ", *layout,
                              " do not exist on the device; use dense (strided) tensors");
  const c10::DeviceGuard guard(device_or_current(device));
  return at::Tensor(at::detail::empty_generic(sizes, allocator(), kKeys, checked_dtype(dtype), format));
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::Tensor(at::detail::empty_strided_generic(sizes, strides, allocator(), kKeys, checked_dtype(dtype)));
}

// Zeros that are never written, as forward-mode and sgn's derivatives make them: core serves most ops by their dispatch
// key alone. Its storage stays without a buffer until something reads it.
at::Tensor efficient_zero_tensor(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                                 std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device_or_current(device));
  constexpr c10::DispatchKeySet keys{c10::DispatchKey::PrivateUse1, c10::DispatchKey::ZeroTensor};
  return at::Tensor(at::detail::empty_generic(sizes, allocator(), keys, checked_dtype(dtype), std::nullopt));
}

// ---- aliases: core's own kernels, which only touch sizes and strides ----
at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  if (strides.size() == sizes.size()) {
    impl->set_sizes_and_strides(sizes, strides);
  } else {
    impl->set_sizes_contiguous(sizes);
  }
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const int64_t length = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {length}, {1});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return self.is_same(source)
             ? self
             : set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  return set_storage(self, c10::Storage(c10::Storage::use_byte_size_t(), 0, allocator(), true), 0, {0}, {1});
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  resize_tensor(self, sizes);
  if (format && *format != at::MemoryFormat::Preserve) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

// `parameter.data = tensor` (which is how module.to() moves a parameter and keeps its identity) asks this. A tensor
// here is an ordinary strided TensorImpl, so that it may take the place of a dense CPU tensor and the other way round.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto dense = [](const at::Tensor& t) {
    return t.layout() == at::kStrided && (t.is_cpu() || t.is_privateuseone());
  };
  return dense(self) && dense(from);
}

// ---- a read by the host ----
bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(),
              " and ", other.device());
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "Expected all tensors to have the same dtype, got ",
              self.scalar_type(), " and ", other.scalar_type());
  return self.sizes() == other.sizes() && self.eq(other).all().item<bool>();
}

// ---- older names of ops that report a failure: the host reads whether there was one ----
at::Tensor checked_cholesky(const at::Tensor& self, bool upper) {
  at::native::squareCheckInputs(self, "cholesky");
  if (self.numel() == 0) return at::empty_like(self, at::MemoryFormat::Contiguous);
  const auto [factor, info] = at::linalg_cholesky_ex(self, upper);
  at::_linalg_check_errors(info, "cholesky", self.dim() == 2);
  return factor;
}

at::Tensor& cholesky_out(const at::Tensor& self, bool upper, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "cholesky: Expected result to be safely castable from ",
              self.scalar_type(), " dtype, but got result with dtype ", out.scalar_type());
  const at::Tensor factor = checked_cholesky(self, upper);
  resize_output(out, factor.sizes());
  return out.copy_(factor);
}

// ---- an op without a row ----
std::atomic<FallbackPolicy> policy{FallbackPolicy::Error};

std::string described_arguments(const torch::jit::Stack& stack, size_t count) {
  std::string text;
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (!stack[i].isTensor() || !stack[i].toTensor().defined()) continue;
    const at::Tensor& t = stack[i].toTensor();
    text += (text.empty() ? "" : ", ") + std::string(c10::toString(t.scalar_type())) + "[" +
            c10::Join(", ", t.sizes()) + "]";
  }
  return text;
}

void no_row(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const FallbackPolicy now = policy.load();
  const std::string name = c10::str(op.operator_name());
  TORCH_CHECK_NOT_IMPLEMENTED(
      now != FallbackPolicy::Error, "[tpu] ", name, "(", described_arguments(*stack, op.schema().arguments().size()),
      ") has no kernel on the device. What is supported: docs/support-matrix.md, or `tpupilot ops`. "
      "To let such ops run on the CPU (each is counted, and a pilot will not pass): TPUPILOT_FALLBACK=warn.");
  count_fallback(name);
  if (now == FallbackPolicy::Warn) TORCH_WARN("[tpu] ", name, " has no kernel on the device and runs on the CPU");
  at::native::cpu_fallback(op, stack);
}

}  // namespace

void resize_tensor(const at::Tensor& tensor, c10::IntArrayRef sizes) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (impl->sizes() == sizes) return;
  impl->set_sizes_contiguous(sizes);
  const size_t needed =
      impl->numel() == 0 ? 0 : static_cast<size_t>(impl->storage_offset() + impl->numel()) * impl->itemsize();
  if (needed > impl->storage().nbytes()) {
    TORCH_CHECK(impl->storage().resizable(), "Trying to resize storage that is not resizable");
    resize_storage(impl->storage(), needed);
  }
}

void resize_output(const at::Tensor& output, c10::IntArrayRef sizes) {
  if (at::native::resize_output_check(output, sizes)) resize_tensor(output, sizes);
}

namespace {

// Running programs keep what they read, and memory is handed out again only after them: nothing is to be remembered.
void record_stream(at::Tensor& self, c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == c10::kPrivateUse1, "[tpu] record_stream: the tensor is on ", self.device(),
              ", the stream on ", stream.device());
}

}  // namespace

void set_fallback_policy(FallbackPolicy p) { policy = p; }
FallbackPolicy fallback_policy() { return policy; }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  m.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  m.impl("set_", TORCH_FN(set_empty));
  m.impl("resize_", TORCH_FN(resize));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("equal", TORCH_FN(equal));
  m.impl("cholesky", TORCH_FN(checked_cholesky));
  m.impl("cholesky.out", TORCH_FN(cholesky_out));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&no_row>()); }

}  // namespace tpupilot::aten
