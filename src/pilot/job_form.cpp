#include "pilot/job_form.h"

#include <algorithm>

namespace tpupilot::pilot {

using nlohmann::json;

JobForm job_form(const Context& context) {
  const json inputs = context.need("reference", "base", "inputs");
  JobForm form;
  form.inference = inputs.value("form", "training") == "inference";
  form.optimizers = !inputs.contains("optimizers") || !inputs["optimizers"].empty();
  form.own_format = inputs.value("own_format", false);
  const auto updated = [&](const std::string& side) {
    if (!context.ended(side, "base")) return false;
    const auto steps = context.all(side, "base", "step");
    return std::any_of(steps.begin(), steps.end(), [](const json& step) { return step.value("updated", false); });
  };
  form.updates = form.optimizers || updated("reference") || updated("candidate");
  return form;
}

CheckResult not_applicable(std::string why) {
  CheckResult result;
  result.verdict = Verdict::NotApplicable;
  result.why = std::move(why);
  return result;
}

}  // namespace tpupilot::pilot
