// im2col and col2im: the columns are the taps of a 2-d window, [N, C kh kw, L]; col2im adds each tap at its places.
#include "ops/expr.h"
#include "ops/windows.h"

namespace tpupilot::ops {
namespace {

struct Columns {
  Dims image;   // [N, C, H, W]
  Dims kernel;  // [kh, kw]
  Window1d rows, columns;
};

// `image` may lack the batch.
Columns columns_of(Context& c, Dims image) {
  if (image.size() == 3) image.insert(image.begin(), 1);
  const Dims kernel = c.integers("kernel_size"), stride = c.integers("stride"), padding = c.integers("padding"),
             dilation = c.integers("dilation");
  const auto window = [&](size_t i) {
    const int64_t count = (image[2 + i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
    return Window1d{static_cast<int64_t>(2 + i), kernel[i], stride[i], padding[i], dilation[i], count};
  };
  return {image, kernel, window(0), window(1)};
}

Values im2col(Context& c) {
  Builder& b = c.b;
  const Value self = c.tensor("self");
  if (c.result().numel() == 0) return {b.zeros(c.result())};
  const Columns w = columns_of(c, self.dims());
  const Value zero = b.zeros({self.elem(), {}});
  const Value x = padded_for(b, padded_for(b, b.reshape(self, w.image), w.rows, zero), w.columns, zero);
  Values taps;
  for (int64_t i = 0; i < w.kernel[0]; ++i) {
    const Value rows = tap(b, x, w.rows, i);
    for (int64_t j = 0; j < w.kernel[1]; ++j) taps.push_back(b.unsqueeze(tap(b, rows, w.columns, j), 2));
  }
  return {b.reshape(taps.size() == 1 ? taps[0] : b.concatenate(taps, 2), c.result().dims)};
}

Values col2im(Context& c) {
  Builder& b = c.b;
  Value x = c.tensor("self");
  if (c.result().numel() == 0 || x.type.numel() == 0) return {b.zeros(c.result())};
  const Columns w = columns_of(c, c.result().dims);
  x = b.convert(x, hlo::compute_elem(x.elem()));
  x = b.reshape(x, {w.image[0], w.image[1], w.kernel[0], w.kernel[1], w.rows.count, w.columns.count});
  const Value zero = b.zeros({x.elem(), {}});
  // One tap along one dim, at the places of the image that it was read from.
  const auto placed = [&](const Value& part, const Window1d& window, int64_t t) {
    Dims low(part.dims().size(), 0), high = low, interior = low;
    const auto at = static_cast<size_t>(window.dim);
    low[at] = t * window.dilation - window.padding;
    high[at] = w.image[at] - low[at] - ((window.count - 1) * window.stride + 1);
    interior[at] = window.stride - 1;
    return b.pad(part, zero, low, high, interior);
  };
  Value total;
  for (int64_t i = 0; i < w.kernel[0]; ++i) {
    Value row;
    for (int64_t j = 0; j < w.kernel[1]; ++j) {
      const Value one = b.squeeze(b.squeeze(b.slice_dim(b.slice_dim(x, 2, i, i + 1), 3, j, j + 1), 3), 2);
      const Value part = placed(one, w.columns, j);
      row = row ? b.add(row, part) : part;
    }
    row = placed(row, w.rows, i);
    total = total ? b.add(total, row) : row;
  }
  return {b.reshape(total, c.result().dims)};
}

}  // namespace

std::vector<Row> unfold_window_rows() {
  return {
      {.overloads = {"im2col", "im2col.out"}, .emit = im2col},
      {.overloads = {"col2im", "col2im.out"}, .emit = col2im},
  };
}

}  // namespace tpupilot::ops
