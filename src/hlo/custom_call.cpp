#include "hlo/builder.h"
#include "hlo/text.h"

namespace tpupilot::hlo {
namespace {

// Row-major, as XLA writes a layout: the dimension whose neighbours lie closest first.
std::string row_major(int64_t rank) {
  Dims order;
  for (int64_t d = rank; d-- > 0;) order.push_back(d);
  const std::string inner = rank == 0 ? "" : bracketed(order);
  return "dense<" + inner + "> : tensor<" + std::to_string(rank) + "xindex>";
}

}  // namespace

Values Builder::custom_call(std::string_view target, const Values& in, const std::vector<Type>& out,
                            const std::vector<std::pair<std::string_view, int64_t>>& integers) {
  std::string config, operand_layouts, result_layouts;
  for (const auto& [name, value] : integers)
    config += (config.empty() ? "" : ", ") + std::string(name) + " = " + integer_attribute(value);
  for (const Value& v : in) operand_layouts += (operand_layouts.empty() ? "" : ", ") + row_major(v.rank());
  for (const Type& t : out) result_layouts += (result_layouts.empty() ? "" : ", ") + row_major(t.rank());
  return ops("stablehlo.custom_call", in, out,
             "call_target_name = \"" + std::string(target) + "\", has_side_effect = false, backend_config = {" +
                 config + "}, api_version = 4 : i32, operand_layouts = [" + operand_layouts + "], result_layouts = [" +
                 result_layouts + "]");
}

}  // namespace tpupilot::hlo
