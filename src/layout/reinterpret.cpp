// The same bytes seen as another element type. Byte order is little endian, as on the host.
#include "layout/layout.h"

namespace tpupilot::layout {
namespace {

using hlo::Builder;
using hlo::Elem;
using hlo::Value;

Value parts_of_complex(Builder& b, const Value& flat) {
  const Value parts = b.concatenate(
      {b.unsqueeze(b.unary("stablehlo.real", flat), 1), b.unsqueeze(b.unary("stablehlo.imag", flat), 1)}, 1);
  return b.reshape(parts, {parts.type.numel()});
}

Value complex_of_parts(Builder& b, const Value& flat) {
  const int64_t n = flat.dims()[0] / 2;
  const Value pairs = b.reshape(flat, {n, 2});
  const auto part = [&](int64_t i) { return b.reshape(b.slice_dim(pairs, 1, i, i + 1), {n}); };
  return b.binary("stablehlo.complex", part(0), part(1));
}

Value between_reals(Builder& b, const Value& flat, Elem elem) {
  if (flat.elem() == elem) return flat;
  const auto from = static_cast<int64_t>(hlo::byte_size(flat.elem())), to = static_cast<int64_t>(hlo::byte_size(elem));
  const int64_t n = flat.dims()[0] * from / to;
  if (n == 0) return b.zeros({elem, {0}});
  if (from < to) return b.bitcast(b.reshape(flat, {n, to / from}), {elem, {n}});
  if (from > to) return b.reshape(b.bitcast(flat, {elem, {flat.dims()[0], from / to}}), {n});
  return b.bitcast(flat, {elem, {n}});
}

}  // namespace

Value reinterpret(Builder& b, const Value& flat, Elem elem) {
  if (flat.rank() != 1) throw hlo::Error("[reinterpret] the buffer must be one-dimensional, not " + flat.type.str());
  const auto bytes = flat.dims()[0] * static_cast<int64_t>(hlo::byte_size(flat.elem()));
  const auto size = static_cast<int64_t>(hlo::byte_size(elem));
  if (size == 0 || bytes % size != 0) {
    throw hlo::Error("[reinterpret] " + std::to_string(bytes) + " bytes of " + flat.type.str() +
                     " are no whole number of " + std::string(hlo::name(elem)));
  }
  if (flat.elem() == elem) return flat;
  // Complex and Pred have no bit casts: the way to and from them leads over their parts, and over bytes of 0 and 1.
  Value reals = flat;
  if (hlo::is_complex(flat.elem())) reals = parts_of_complex(b, flat);
  if (flat.elem() == Elem::Pred) reals = b.convert(flat, Elem::U8);
  if (hlo::is_complex(elem)) return complex_of_parts(b, between_reals(b, reals, hlo::real_of(elem)));
  if (elem == Elem::Pred) {
    const Value octets = between_reals(b, reals, Elem::U8);
    return b.compare(hlo::Direction::NE, octets, b.zeros(octets.type));
  }
  return between_reals(b, reals, elem);
}

}  // namespace tpupilot::layout
