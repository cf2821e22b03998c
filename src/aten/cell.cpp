#include "aten/cell.h"

#include "aten/element.h"
#include "aten/storage.h"

namespace tpupilot::aten {

namespace {

// A storage that somebody else made of one of our addresses.
Cell& aliased_cell(const c10::Storage& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  TORCH_CHECK(data.device().is_privateuseone(), "[tpu] the tensor's storage is not on the device (", data.device(),
              "); was it made by set_() from another one?");
  Cell* cell = cell_at(data.get());
  TORCH_CHECK(cell != nullptr,
              "[tpu] the tensor's memory does not belong to any tensor of the device; memory from "
              "elsewhere cannot be used in place: copy it through the CPU");
  TORCH_CHECK(cell->address == data.get() && cell->nbytes == storage.nbytes(), "[tpu] the tensor names ",
              storage.nbytes(), " bytes inside a storage of ", cell->nbytes,
              " bytes; only a whole storage can be shared by its address: share x.contiguous() or x.clone()");
  return *cell;
}

}  // namespace

Cell& cell_of(const at::TensorBase& tensor) {
  const c10::DataPtr& data = tensor.storage().data_ptr();
  if (data.get_deleter() == &free_cell && data.get_context() != nullptr) [[likely]] {
    return *static_cast<Cell*>(data.get_context());
  }
  return aliased_cell(tensor.storage());
}

int64_t storage_length(const at::TensorBase& tensor) {
  return static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize());
}

layout::Layout layout_of(const at::TensorBase& tensor) {
  return {dims_of(tensor.sizes()), dims_of(tensor.strides()), tensor.storage_offset()};
}

hlo::Type type_of(const at::TensorBase& tensor) { return {elem_of(tensor.scalar_type()), dims_of(tensor.sizes())}; }

void assign(Cell& cell, BufferRef buffer, hlo::Elem elem, int64_t length) {
  cell.buffer = std::move(buffer);
  cell.elem = elem;
  cell.length = length;
  cell.recording = 0;
}

const BufferRef& buffer_of(const at::TensorBase& tensor) {
  Cell& cell = cell_of(tensor);
  if (!cell.buffer) {
    TORCH_CHECK(cell.recording == 0,
                "[tpu] the tensor was made while a compiled region was recorded, and exists only in it");
    fill_with_zeros(cell, elem_of(tensor.scalar_type()), storage_length(tensor));
  }
  return cell.buffer;
}

}  // namespace tpupilot::aten
