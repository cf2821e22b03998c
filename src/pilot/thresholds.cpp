#include "pilot/thresholds.h"

#include "pilot/errors.h"

namespace tpupilot::pilot {

using nlohmann::json;

json thresholds_of(const Settings& settings) {
  // torch.testing.assert_close's defaults; whole numbers and truth values are compared exactly.
  json tolerance = {
      {"float64", {1e-7, 1e-7}}, {"float32", {1.3e-6, 1e-5}}, {"float16", {1e-3, 1e-5}}, {"bfloat16", {1.6e-2, 1e-5}}};
  const json& asked = settings.value("parity", "tolerance");
  if (asked.is_object()) {
    for (const auto& [dtype, pair] : asked.items()) {
      if (!tolerance.contains(dtype)) {
        const std::string near = nearest(dtype, {"float64", "float32", "float16", "bfloat16"});
        throw Error(
            "[parity.tolerance] no dtype `" + dtype + "`" +
            (near.empty() ? "; known: float64, float32, float16, bfloat16." : "; did you mean `" + near + "`?"));
      }
      tolerance[dtype] = pair;
    }
  }
  // f32 products of bf16 operands are bf16 arithmetic, as under autocast.
  const bool bf16 = settings.text("candidate", "numerics") == "tpu" && settings.text("reference", "autocast").empty();
  return {{"tolerance", tolerance},
          {"judge", settings.text("parity", "judge")},
          {"judge_factor", {{"float64", 2.0}, {"float32", 2.0}, {"float16", 3.0}, {"bfloat16", 3.0}}},
          {"autocast",
           bf16 ? "bfloat16"
                : settings.text("reference", "autocast")},  // not empty: everything is judged by the rule of that dtype
          {"max_tpu_error", settings.number("parity", "max_tpu_error")},
          {"max_drift", settings.number("parity", "max_drift")}};
}

}  // namespace tpupilot::pilot
