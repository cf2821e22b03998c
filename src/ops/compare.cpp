// Comparisons: computed in the type that ATen promotes the two operands to; the result is bool.
#include "ops/promote.h"

namespace tpupilot::ops {
namespace {

using hlo::Direction;

Row comparison(std::vector<std::string_view> overloads, Direction direction) {
  return {.overloads = std::move(overloads), .emit = [direction](Context& c) {
            const Elem elem = result_type(c, "self", "other");
            const Dims& dims = c.result().dims;
            return Values{compare(direction, operand(c, "self", elem, dims), operand(c, "other", elem, dims))};
          }};
}

}  // namespace

std::vector<Row> compare_rows() {
  return {
      comparison({"eq.Tensor_out", "eq.Scalar_out"}, Direction::EQ),
      comparison({"ne.Tensor_out", "ne.Scalar_out"}, Direction::NE),
      comparison({"lt.Tensor_out", "lt.Scalar_out"}, Direction::LT),
      comparison({"le.Tensor_out", "le.Scalar_out"}, Direction::LE),
      comparison({"gt.Tensor_out", "gt.Scalar_out"}, Direction::GT),
      comparison({"ge.Tensor_out", "ge.Scalar_out"}, Direction::GE),
  };
}

}  // namespace tpupilot::ops
