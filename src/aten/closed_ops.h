// The closed list of ops that cannot be rows of the op table: they make, alias or resize storages, or move data between
// host and device. (Those whose result size depends on data: sized_ops.cpp.)
#pragma once

#include <ATen/core/Tensor.h>

namespace tpupilot::aten {

// tensor.resize_(sizes): contiguous, the storage grows if it must.
void resize_tensor(const at::Tensor& tensor, c10::IntArrayRef sizes);

// The same for an out= argument of another size: warns as ATen does, unless it is empty.
void resize_output(const at::Tensor& output, c10::IntArrayRef sizes);

// dst.copy_(src) between two tensors on the device; shapes already equal or broadcastable.
void copy_on_device(const at::Tensor& dst, const at::Tensor& src);

// Any source and destination, at least one on the device.
at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool non_blocking);

// Raises NotImplementedError for an op without a row, or runs it on the CPU if TPUPILOT_FALLBACK allows it.
enum class FallbackPolicy { Error, Warn, Allow };
void set_fallback_policy(FallbackPolicy policy);
FallbackPolicy fallback_policy();

}  // namespace tpupilot::aten
