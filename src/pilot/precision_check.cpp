// Gate 1: the first step with f32 products as a TPU makes them, in one, three and six bf16 passes.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "numerics/tensor_file.h"
#include "pilot/comparison.h"
#include "pilot/context.h"
#include "pilot/families.h"
#include "pilot/job_form.h"

namespace tpupilot::pilot::parity {

using nlohmann::json;

namespace {

struct Setting {
  int passes;
  const char *torch, *words;  // of torch.set_float32_matmul_precision
};
// On a TPU "highest" is six passes; a job that asks for nothing gets one.
constexpr Setting kSettings[] = {{1, "medium", "one pass"}, {3, "high", "three"}, {6, "highest", "six"}};

std::string number(double value) {
  std::ostringstream out;
  out.precision(2);
  out << value;
  return out.str();
}

// One recorded set of a task of the candidate, against the float64 run.
struct Measure {
  double relative = 0;  // the error over all its float tensors, relative to their norm
  bool inside = true;   // the rule of par.*
};

class Errors {
 public:
  explicit Errors(const Context& context) : context_(context), form_(job_form(context)) {}

  json of(const std::string& task) const {
    json parts = json::object();
    const bool loss = !form_.inference;
    add(parts, loss ? "loss" : "outputs",
        {"forward", 0, "base", "candidate", task, [loss](const std::string& name) { return !loss || name == "loss"; }});
    if (form_.optimizers) add(parts, "gradients", {"gradients", 0, "base", "candidate", task});
    return parts;
  }

 private:
  void add(json& parts, const std::string& name, const SetRequest& request) const {
    const Measure found = measure(request);
    parts[name] = {{"relative_error", found.relative}, {"inside_the_rule", found.inside}};
  }

  Measure measure(const SetRequest& request) const {
    const SetResult set = compare_sets(context_, request);
    const numerics::TensorFile exact(
        context_.verified(context_.tensors("reference", request.exact_task, request.what, request.step)));
    double squares = 0, norm = 0;
    for (const json& row : set.rows) {
      const auto tensor = exact.tensors().find(row.at("name").get<std::string>());
      if (tensor == exact.tensors().end() || !row.at("rmse_candidate").is_number()) continue;
      const double error = row["rmse_candidate"];
      squares += error * error * static_cast<double>(tensor->second.count());
      norm += numerics::squared_norm(exact.file(), tensor->second);
    }
    if (!std::isfinite(squares) || norm == 0)
      throw NotJudgedError("there is nothing to measure an error of the " + request.what + " by");
    return {std::sqrt(squares / norm), set.stopped.empty() && set.unmatched.empty()};
  }

  const Context& context_;
  JobForm form_;
};

double largest(const json& parts) {
  double error = 0;
  for (const json& part : parts) error = std::max(error, part.at("relative_error").get<double>());
  return error;
}

bool inside(const json& parts) {
  return std::all_of(parts.begin(), parts.end(), [](const json& part) { return part.at("inside_the_rule"); });
}

std::string text_of(const json& parts) {
  std::string text;
  for (const auto& [name, part] : parts.items())
    text += (text.empty() ? "" : ", ") + name + " " + number(part.at("relative_error"));
  return text;
}

// What decides: a limit of the pilot file, or else the rule that f32 is held to.
class Needed {
 public:
  explicit Needed(double limit) : limit_(limit) {}
  bool good(const json& parts) const { return limit_ > 0 ? largest(parts) <= limit_ : inside(parts); }
  std::string setting(const json& settings) const {
    for (const Setting& s : kSettings) {
      if (good(settings.at(s.torch))) return s.torch;
    }
    return "";
  }
  std::string by() const { return limit_ > 0 ? "parity.max_tpu_error = " + number(limit_) : "the rule of par.*"; }

 private:
  double limit_;
};

}  // namespace

CheckResult tpu_precision(const Context& context) {
  const std::string device = context.settings().text("candidate", "device");
  if (device.starts_with("cpu")) return not_applicable("the candidate's device is the CPU itself: no TPU is rehearsed");
  const double limit = context.settings().number("parity", "max_tpu_error");
  CheckResult result;
  result.rule = {{"max_tpu_error", limit > 0 ? json(limit) : json("reported only")}};
  result.evidence = {"candidate/events.jsonl"};
  if (context.settings().text("parity", "judge") != "float64" || !context.ended("reference", "float64"))
    throw NotJudgedError("there is no float64 run of the step to measure the errors by");
  const Errors errors(context);
  json settings = json::object();
  std::string asked = "highest", said;
  for (const Setting& s : kSettings) {
    const std::string task = "tpu-precision-" + std::to_string(s.passes);
    const json event = context.need("candidate", task, "precision");
    if (!event.at("able"))
      throw NotJudgedError("the device `" + device + "` cannot be told in how many bf16 passes to multiply f32");
    asked = event.at("matmul_precision");
    settings[s.torch] = errors.of(task);
    said += (said.empty() ? "" : "; ") + std::string(s.words) + " " + text_of(settings[s.torch]);
  }
  const json plain = errors.of("base");
  const std::string used = asked == "highest" ? "medium" : asked;  // "highest" is torch's default: the job asks nothing
  const Needed needed(limit);
  const std::string setting = needed.setting(settings);
  result.measured = {{"settings", settings}, {"candidate", plain}, {"job_asks", asked}, {"needs", setting}};
  const std::string need = setting.empty()       ? "no setting is inside " + needed.by()
                           : setting == "medium" ? "a TPU's default is inside " + needed.by()
                                                 : "torch.set_float32_matmul_precision(\"" + setting +
                                                       "\") is the least that is inside " + needed.by();
  result.verdict = limit > 0 && !needed.good(settings.at(used)) ? Verdict::Stop : Verdict::Pass;
  result.why = "relative errors against float64, bf16 passes of f32 products: " + said + "; as run here " +
               text_of(plain) + "; " + need;
  return result;
}

}  // namespace tpupilot::pilot::parity
