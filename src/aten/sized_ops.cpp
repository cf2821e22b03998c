// Ops whose result size depends on data. The device computes the result as long as it can become, and how much of it
// counts; the host reads that number (one sync) and keeps the front. Nothing is computed on the host.
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "aten/cell.h"
#include "aten/closed_ops.h"
#include "aten/storage.h"

namespace tpupilot::aten {
namespace {

using at::Tensor;
using c10::IValue;

// An op of our own (ops::internal_ops).
torch::jit::Stack run(const char* name, torch::jit::Stack arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow((std::string("tpupilot::") + name).c_str(), "");
  op.callBoxedForDispatchKey(c10::DispatchKey::PrivateUse1, arguments);
  return arguments;
}

int64_t read_count(const IValue& count) { return at::_local_scalar_dense(count.toTensor()).toLong(); }

// `padded` shows its first elements in the given shape. Much unused memory is given back, at the price of a copy.
Tensor front(const IValue& padded, at::IntArrayRef sizes, at::IntArrayRef strides) {
  constexpr size_t kWorthACopy = size_t{1} << 20;
  Tensor result = padded.toTensor();
  auto* impl = result.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides);
  const size_t needed = static_cast<size_t>(result.numel()) * result.itemsize();
  if (const size_t held = result.storage().nbytes(); held > kWorthACopy && needed < held / 2) {
    resize_storage(result.storage(), needed);
  }
  return result;
}
Tensor front(const IValue& padded, const hlo::Dims& sizes) {
  return front(padded, sizes, hlo::contiguous_strides(sizes));
}

Tensor indices_like(const Tensor& self, at::IntArrayRef sizes) {
  return at::empty(sizes, self.options().dtype(at::kLong));
}

// out = result, as at::native::resize_output and a copy.
Tensor& give(Tensor& out, const Tensor& result, const char* op) {
  TORCH_CHECK(out.device() == result.device(), op, ": expected out on ", result.device(), " but it is on ",
              out.device());
  if (out.sizes() != result.sizes()) {
    resize_output(out, result.sizes());
    if (result.numel() > 0) out.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides());
  }
  return out.copy_(result);
}

// ---- nonzero, masked_select ----
Tensor coordinates_of_nonzero(const Tensor& self) {
  if (self.numel() == 0) return indices_like(self, {0, self.dim()});
  const torch::jit::Stack found = run("nonzero", {self});
  const int64_t count = read_count(found[1]);
  return front(found[0], {count, self.dim()}, {1, count});
}

Tensor& nonzero_out(const Tensor& self, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "nonzero: Expected out tensor to have scalar type Long but got scalar type", out.scalar_type());
  TORCH_CHECK(self.device() == out.device(), "expected self and out to be on the same device, but got out on ",
              out.device(), " and self on ", self.device());
  return give(out, coordinates_of_nonzero(self), "nonzero");
}

Tensor elements_of_mask(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const at::DimVector sizes(at::infer_size_dimvector(self.sizes(), mask.sizes()));
  if (c10::multiply_integers(sizes) == 0) return at::empty({0}, self.options());
  const torch::jit::Stack found = run("masked_select", {self, mask});
  return front(found[0], {read_count(found[1])});
}

Tensor& masked_select_out(const Tensor& self, const Tensor& mask, Tensor& out) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  return give(out, elements_of_mask(self, mask), "masked_select");
}

// ---- unique ----
struct Request {
  bool sort, inverse, counts;
};
using Three = std::tuple<Tensor, Tensor, Tensor>;

Three unique_elements(const Tensor& self, const Request& r) {
  const Tensor none = indices_like(self, {0});
  if (self.numel() == 0)
    return {at::empty({0}, self.options()), r.inverse ? indices_like(self, self.sizes()) : none, none};
  const torch::jit::Stack found = run("unique", {self, IValue(), r.sort, r.inverse, r.counts});
  const int64_t count = read_count(found[3]);
  return {front(found[0], {count}), r.inverse ? found[1].toTensor().view(self.sizes()) : none,
          r.counts ? front(found[2], {count}) : none};
}

Three unique_slices(const Tensor& self, int64_t dim, const Request& r) {
  if (self.dim() == 0) dim = 0;
  dim = c10::maybe_wrap_dim(dim, self.dim());
  const auto sizes = self.sizes().vec();
  const auto zeros = std::count(sizes.begin(), sizes.end(), 0);
  const Tensor none = indices_like(self, {0});
  if (self.dim() > 0 && self.size(dim) == 0) {
    TORCH_CHECK(zeros == 1, "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    return {at::empty(sizes, self.options()), none, none};
  }
  TORCH_CHECK(zeros == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  const Tensor x = self.dim() == 0 ? self.reshape({1}) : self;
  const torch::jit::Stack found = run("unique", {x, dim, r.sort, r.inverse, r.counts});
  const int64_t count = read_count(found[3]);
  hlo::Dims shape = dims_of(x.sizes());
  shape.erase(shape.begin() + dim);
  shape.insert(shape.begin(), count);
  return {front(found[0], shape).movedim(0, dim), r.inverse ? found[1].toTensor() : none,
          r.counts ? front(found[2], {count}) : none};
}

std::tuple<Tensor, Tensor> unique1(const Tensor& self, bool, bool inverse) {
  const auto [values, groups, counts] = unique_elements(self, {true, inverse, false});
  return {values, groups};
}
Three unique2(const Tensor& self, bool, bool inverse, bool counts) {
  return unique_elements(self, {true, inverse, counts});
}
// ATen's on the CPU gives the inverse and the counts of slices whether they are asked for or not.
Three unique_dim(const Tensor& self, int64_t dim, bool, bool, bool) {
  return unique_slices(self, dim, {true, true, true});
}
Three unique_dim_consecutive(const Tensor& self, int64_t dim, bool, bool) {
  return unique_slices(self, dim, {false, true, true});
}
Three unique_consecutive(const Tensor& self, bool inverse, bool counts, std::optional<int64_t> dim) {
  // One dim of one-dimensional tensors is all elements (at::native::unique_consecutive_cpu).
  if (!dim || (*dim == 0 && self.dim() == 1)) return unique_elements(self, {false, inverse, counts});
  return unique_slices(self, *dim, {false, true, true});
}

// ---- sizes that are read first ----
// The smallest element, the largest, and the sum.
std::array<int64_t, 3> summary(const Tensor& self) {
  const Tensor host = run("summary", {self})[0].toTensor().cpu();
  const auto* p = host.const_data_ptr<int64_t>();
  return {p[0], p[1], p[2]};
}

Tensor bincount(const Tensor& self, const std::optional<Tensor>& weights, int64_t minlength) {
  TORCH_CHECK(at::isIntegralType(self.scalar_type(), false), "\"bincount_cpu\" not implemented for '",
              self.scalar_type(), "'");
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  const bool weighted = weights && weights->defined();
  const auto dtype = !weighted ? at::kLong : weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  if (self.dim() == 1 && self.numel() == 0) return at::zeros({minlength}, self.options().dtype(at::kLong));
  const bool fits = self.dim() == 1;
  const std::array<int64_t, 3> data = fits ? summary(self) : std::array<int64_t, 3>{};
  TORCH_CHECK(fits && data[0] >= 0, "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  const Tensor result =
      run("bincount", {self, weighted ? IValue(*weights) : IValue(), std::max(data[1] + 1, minlength)})[0].toTensor();
  TORCH_INTERNAL_ASSERT(result.scalar_type() == dtype);
  return result;
}

Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeats has to be Long or Int tensor");
  if (repeats.size(0) == 0) return at::empty_like(repeats);
  int64_t size = output_size.value_or(0);
  if (!output_size) {
    const std::array<int64_t, 3> data = summary(repeats);
    TORCH_CHECK(data[0] >= 0, "repeats can not be negative");
    size = data[2];
  }
  return run("repeat_interleave", {repeats, size})[0].toTensor();
}

// ---- multinomial: an exponential race without replacement, as ATen's ----
void check_multinomial(const Tensor& self, int64_t samples, bool replacement) {
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(replacement || samples <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
}

Tensor drawn_samples(const Tensor& self, int64_t samples, bool replacement, std::optional<at::Generator> generator) {
  check_multinomial(self, samples, replacement);
  hlo::Dims sizes = dims_of(self.sizes());
  sizes.back() = samples;
  if (self.numel() == 0) return indices_like(self, sizes);
  if (replacement && samples > 1) {
    const IValue given = generator ? IValue(*generator) : IValue();
    return run("multinomial_with_replacement", {self, samples, given})[0].toTensor();
  }
  const at::ScalarType wide = self.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor times = at::empty_like(self, self.options().dtype(wide)).exponential_(1, generator);
  const Tensor score = self.to(wide).div(times);
  if (samples == 1) return at::argmax(score, -1, true);
  return std::get<1>(at::topk(score, samples));
}

Tensor& multinomial_out(const Tensor& self, int64_t samples, bool replacement, std::optional<at::Generator> generator,
                        Tensor& out) {
  TORCH_CHECK(self.device() == out.device(), "multinomial arguments must have the same device");
  check_multinomial(self, samples, replacement);
  TORCH_CHECK(out.scalar_type() == at::kLong, "multinomial expects Long tensor out, got: ", out.scalar_type());
  const Tensor drawn = drawn_samples(self, samples, replacement, std::move(generator));
  resize_tensor(out, drawn.sizes());  // ATen does not warn here
  return give(out, drawn, "multinomial");
}

// ---- histogramdd's edges: a tensor for each dim ----
std::vector<Tensor> histogramdd_bin_edges(const Tensor& self, at::IntArrayRef bins,
                                          std::optional<at::ArrayRef<double>> range, const std::optional<Tensor>&,
                                          bool) {
  TORCH_CHECK(self.dim() >= 2, "torch.histogramdd: input tensor should have at least 2 dimensions, but got ",
              self.dim());
  const int64_t n = self.size(-1);
  TORCH_CHECK(static_cast<int64_t>(bins.size()) == n,
              "torch.histogramdd: bins tensor should have one element for each "
              "innermost dimension of the input");
  std::vector<Tensor> edges;
  const IValue given = range ? IValue(c10::List<double>(range->vec())) : IValue();
  for (int64_t d = 0; d < n; ++d) edges.push_back(run("bin_edges", {self, d, bins[d], given})[0].toTensor());
  return edges;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", TORCH_FN(coordinates_of_nonzero));
  m.impl("nonzero.out", TORCH_FN(nonzero_out));
  m.impl("masked_select", TORCH_FN(elements_of_mask));
  m.impl("masked_select.out", TORCH_FN(masked_select_out));
  m.impl("_unique", TORCH_FN(unique1));
  m.impl("_unique2", TORCH_FN(unique2));
  m.impl("unique_dim", TORCH_FN(unique_dim));
  m.impl("unique_dim_consecutive", TORCH_FN(unique_dim_consecutive));
  m.impl("unique_consecutive", TORCH_FN(unique_consecutive));
  m.impl("bincount", TORCH_FN(bincount));
  m.impl("repeat_interleave.Tensor", TORCH_FN(repeat_interleave));
  m.impl("multinomial", TORCH_FN(drawn_samples));
  m.impl("multinomial.out", TORCH_FN(multinomial_out));
  m.impl("_histogramdd_bin_edges", TORCH_FN(histogramdd_bin_edges));
}

}  // namespace tpupilot::aten
