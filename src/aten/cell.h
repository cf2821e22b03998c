// A storage on the device. Its data pointer is a unique address in a reserved range that nobody may read; its DataPtr
// context is a Cell: an immutable device buffer that a write replaces by a new one. Every alias of the storage sees the
// new buffer; programs that were enqueued earlier keep the old one alive.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/Allocator.h>

#include <memory>

#include "hlo/type.h"
#include "layout/layout.h"
#include "pjrt/client.h"

namespace tpupilot::aten {

using BufferRef = std::shared_ptr<pjrt::Buffer>;

struct Cell {
  void* address = nullptr;  // the storage's data pointer
  size_t nbytes = 0;        // the storage's size when it was allocated
  c10::DeviceIndex device = 0;
  BufferRef buffer;                     // one-dimensional; null = never written (reads as zeros)
  hlo::Elem elem = hlo::Elem::Invalid;  // of the buffer
  int64_t length = 0;                   // elements of the buffer

  // While a program is being recorded: the value that stands for the buffer in recording `recording`. A storage that
  // was made in a recording never gets a buffer.
  uint64_t recording = 0;
  hlo::Value value;
};

// The tensor's storage must come from allocator(), or be an alias of a whole such storage by its address, as torch
// makes it for from_dlpack and for reading a file into a storage; raises otherwise.
Cell& cell_of(const at::TensorBase& tensor);

// The storage's length counted in the tensor's own elements. Raises if the bytes do not divide evenly.
int64_t storage_length(const at::TensorBase& tensor);
layout::Layout layout_of(const at::TensorBase& tensor);
hlo::Type type_of(const at::TensorBase& tensor);  // element type and logical shape

inline hlo::Dims dims_of(c10::IntArrayRef a) { return {a.begin(), a.end()}; }

// Replaces the cell's buffer. `length` elements of `elem`.
void assign(Cell& cell, BufferRef buffer, hlo::Elem elem, int64_t length);
// The cell's buffer, made of zeros if it was never written.
const BufferRef& buffer_of(const at::TensorBase& tensor);

c10::Allocator* allocator();
void free_cell(void* context);  // the deleter of every DataPtr that allocator() hands out, and of no other

// The live storage that holds the address; null if there is none.
Cell* cell_at(const void* address);

}  // namespace tpupilot::aten
