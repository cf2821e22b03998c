// Moving whole values between the host and the device, and changing a storage's size.
#pragma once

#include <ATen/core/Tensor.h>

#include "aten/cell.h"

namespace tpupilot::aten {

// Gives the storage `nbytes` bytes; the common prefix keeps its content. A storage of 0 bytes holds no buffer.
void resize_storage(const c10::Storage& storage, size_t nbytes);

// A storage that is read before it was written.
void fill_with_zeros(Cell& cell, hlo::Elem elem, int64_t length);

// dst (on the device, covering its whole storage, without gaps) gets the bytes of `source` (on the CPU, same dtype,
// sizes and strides). Takes the host memory over without a copy where that is safe (see storage.cpp).
void upload(const at::Tensor& dst, const at::Tensor& source);

// A 0-d device value for a number or a 0-d CPU tensor; the last few thousand distinct ones are kept.
BufferRef scalar_buffer(hlo::Elem elem, const void* bytes, c10::DeviceIndex device);

// The elements of a tensor that is_whole, copied to `dst` (numel * itemsize bytes). Waits for them.
void download_whole(const at::Tensor& source, void* dst);

}  // namespace tpupilot::aten
