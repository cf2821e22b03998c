#include <stdexcept>
#include <unordered_set>

#include "ops/row.h"

namespace tpupilot::ops {
namespace {

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  std::unordered_set<std::string_view> seen;
  for (auto* family : {unary_rows,
                       binary_rows,
                       compare_rows,
                       fill_rows,
                       reduction_rows,
                       shape_rows,
                       index_rows,
                       matmul_rows,
                       convolution_rows,
                       pooling_rows,
                       normalization_rows,
                       activation_rows,
                       softmax_rows,
                       loss_rows,
                       random_rows,
                       optimizer_rows,
                       recurrent_rows,
                       sort_rows,
                       linalg_rows,
                       cholesky_rows,
                       lu_rows,
                       fft_rows,
                       decomposition_rows,
                       modified_bessel_rows,
                       bessel_rows,
                       normal_rows,
                       polynomial_rows,
                       gamma_rows,
                       padding_rows,
                       unfold_window_rows,
                       distance_rows,
                       grid_sample_rows,
                       margin_loss_rows,
                       embedding_bag_rows,
                       ctc_rows,
                       segment_rows,
                       fractional_pool_rows,
                       counted_rows,
                       histogram_rows}) {
    for (Row& row : family()) {
      for (const std::string_view overload : row.overloads) {
        if (!seen.insert(overload).second) throw std::logic_error("[rows] two rows serve " + std::string(overload));
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace

const std::vector<Row>& rows() {
  static const auto* table = new std::vector<Row>(all_rows());
  return *table;
}

const std::vector<InternalOp>& internal_ops() {
  static const auto* ops = [] {
    auto* all = new std::vector<InternalOp>;
    for (auto* family : {counted_ops, histogram_ops, random_ops}) {
      for (InternalOp& op : family()) all->push_back(std::move(op));
    }
    return all;
  }();
  return *ops;
}

Dims Context::dims_or_all(std::string_view name, int64_t rank) const {
  Dims dims;
  if (given(name)) dims = integers(name);
  if (dims.empty()) {
    for (int64_t i = 0; i < rank; ++i) dims.push_back(i);
    return dims;
  }
  for (int64_t& d : dims) d = hlo::wrap_dim(d, rank);
  if (rank == 0) dims.clear();
  return dims;
}

}  // namespace tpupilot::ops
