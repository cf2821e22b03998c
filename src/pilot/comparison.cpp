#include "pilot/comparison.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "evidence/digest.h"
#include "numerics/judge_run.h"
#include "numerics/tensor_file.h"
#include "pilot/evidence_tensors.h"
#include "pilot/job_form.h"

namespace tpupilot::pilot {

using nlohmann::json;
using numerics::Judgement;
using numerics::TensorFile;
using numerics::TensorView;
using Tensors = std::map<std::string, TensorView>;

namespace {

std::string shape_text(const TensorView& tensor) {
  std::string text = tensor.dtype + "[";
  for (size_t i = 0; i < tensor.shape.size(); ++i) text += (i ? "," : "") + std::to_string(tensor.shape[i]);
  return text + "]";
}

bool alike(const TensorView& a, const TensorView& b) { return a.dtype == b.dtype && a.shape == b.shape; }

std::string kind_of(const std::string& what) {
  return what == "gradients" ? "gradient" : what == "operators" ? "operator" : what;
}

// The f64 run's file; "" if the pilot file asks for no judge, or the job cannot be run in f64.
std::string judge_file(const Context& context, const SetRequest& request) {
  if (context.settings().text("parity", "judge") != "float64" || !context.ended("reference", request.exact_task))
    return "";
  const std::string what = request.exact_what.empty() ? request.what : request.exact_what;
  return context.tensors("reference", request.exact_task, what, request.step);
}

// The loss is recorded in f64, but computed in the dtype of the outputs: that dtype's rule is the right one.
std::string computed_dtype(const std::string& name, const TensorView& tensor, const Tensors& set) {
  if (name != "loss") return tensor.dtype;
  std::string narrowest = "float32";
  for (const auto& [other, output] : set) {
    if (other == "loss" || !output.is_float()) continue;
    if (output.dtype == "bfloat16" || output.dtype == "float16") return output.dtype;
    narrowest = output.dtype;
  }
  return narrowest;
}

std::string describe(const std::string& name, const json& row) {
  std::ostringstream text;
  text.precision(3);
  text << name << ": max |difference| " << row.at("max_abs").get<double>();
  if (row.at("rmse_candidate").is_number())
    text << ", RMSE against f64 " << row["rmse_candidate"].get<double>() << " (reference "
         << row["rmse_reference"].get<double>() << ")";
  return text.str();
}

// The dtype whose rule judges the job: autocast's, else that of its gradients, or of its state where it has none.
std::string working_dtype(const Context& context) {
  if (const std::string autocast = context.manifest().at("thresholds").value("autocast", ""); !autocast.empty())
    return autocast;
  const std::string what = job_form(context).optimizers ? "gradients" : "state";
  const TensorFile file(context.verified(context.tensors("reference", "base", what, 0)));
  for (const auto& [name, tensor] : file.tensors()) {
    if (tensor.is_float()) return tensor.dtype;
  }
  return "float32";
}

// The pairs of a set that can be compared, by name; names of the others go to `unmatched`.
std::map<std::string, numerics::Pair> pairs_of(const SetRequest& request, const Tensors& reference,
                                               const Tensors& candidate, const Tensors& exact, const json& thresholds,
                                               std::vector<std::string>& unmatched) {
  std::map<std::string, numerics::Pair> pairs;
  const auto wanted = [&](const std::string& name) { return !request.wanted || request.wanted(name); };
  for (const auto& [name, tensor] : reference) {
    if (!wanted(name)) continue;
    const auto other = candidate.find(name);
    if (other == candidate.end() || !alike(tensor, other->second)) {
      unmatched.push_back(name + " (" + shape_text(tensor) + " on the reference, " +
                          (other == candidate.end() ? "absent" : shape_text(other->second)) + " on the candidate)");
      continue;
    }
    numerics::Pair& pair = pairs[name];
    pair.reference = tensor;
    pair.candidate = other->second;
    pair.rule = numerics::rule_for(thresholds, computed_dtype(name, tensor, reference));
    const auto judge = exact.find(name);
    if (judge != exact.end() && judge->second.shape == tensor.shape && tensor.is_float()) pair.exact = judge->second;
  }
  for (const auto& [name, tensor] : candidate) {
    if (wanted(name) && !reference.contains(name)) unmatched.push_back(name + " (on the candidate only)");
  }
  return pairs;
}

}  // namespace

SetResult compare_sets(const Context& context, const SetRequest& request) {
  const std::string left = context.tensors("reference", request.reference_task, request.what, request.step);
  const std::string right = context.tensors(request.candidate_side, request.candidate_task, request.what, request.step);
  EvidenceTensors reference(context, left), candidate(context, right);
  std::optional<EvidenceTensors> exact;
  if (const std::string judge = judge_file(context, request); !judge.empty()) exact.emplace(context, judge);
  json thresholds = context.manifest().at("thresholds");
  if (!request.autocast) thresholds["autocast"] = "";
  SetResult result;
  result.evidence = {left, right};
  const auto pairs = pairs_of(request, reference.tensors(), candidate.tensors(), exact ? exact->tensors() : Tensors(),
                              thresholds, result.unmatched);
  std::vector<numerics::Pair> in_order;
  in_order.reserve(pairs.size());
  for (const auto& [name, pair] : pairs) in_order.push_back(pair);
  std::vector<EvidenceTensors*> files = {&reference, &candidate};
  if (exact) files.push_back(&*exact);
  auto judgements = judge_evidence(in_order, files);
  std::vector<std::pair<double, std::string>> stopped;
  double worst = -1;
  auto next = judgements.begin();
  for (const auto& [name, pair] : pairs) {
    Judgement& judged = *next++;
    judged.row["name"] = name;
    judged.row["kind"] = kind_of(request.what);
    judged.row["step"] = request.step;
    if (judged.severity > worst) worst = judged.severity, result.worst = describe(name, judged.row);
    if (!judged.passed) stopped.emplace_back(judged.severity, name);
    result.judged_by_f64 += judged.passed_by == "judge";
    result.reference_nonfinite = result.reference_nonfinite || judged.nonfinite;
    result.rows.push_back(std::move(judged.row));
  }
  std::sort(stopped.rbegin(), stopped.rend());
  for (auto& [severity, name] : stopped) result.stopped.push_back(name);
  return result;
}

std::vector<std::string> differing_tensors(const Context& context, const std::string& left, const std::string& right,
                                           const std::vector<std::string>& but) {
  const TensorFile left_file(context.verified(left + "/state.safetensors")),
      right_file(context.verified(right + "/state.safetensors"));
  const Tensors &a = left_file.tensors(), &b = right_file.tensors();
  const auto skipped = [&](const std::string& name) { return std::find(but.begin(), but.end(), name) != but.end(); };
  std::vector<std::string> names;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (!skipped(name) && (other == b.end() || !alike(tensor, other->second) ||
                           !numerics::same_bytes(left_file.file(), tensor, right_file.file(), other->second)))
      names.push_back(name);
  }
  for (const auto& [name, tensor] : b) {
    if (!skipped(name) && !a.contains(name)) names.push_back(name);
  }
  return names;
}

std::string broken_checkpoint(const Context& context, const std::string& folder) {
  const auto tensors = context.verified(folder + "/state.safetensors"),
             state_file = context.verified(folder + "/state.json");
  const json state = json::parse(evidence::read_text(state_file), nullptr, false);
  if (!state.is_object()) return folder + "/state.json is no JSON";
  if (state.value("tensors_sha256", "") != evidence::sha256_of_file(tensors))
    return folder + "/state.safetensors does not have the hash that its state.json names";
  const TensorFile whole(tensors);
  return "";
}

namespace {

// The float tensor with the largest norm among the wanted names.
std::string largest(const TensorFile& file, const std::function<bool(const std::string&)>& wanted) {
  std::string name;
  double best = 0;
  for (const auto& [key, tensor] : file.tensors()) {
    if (!wanted(key) || !tensor.is_float()) continue;
    const double size = numerics::squared_norm(file.file(), tensor);
    if (std::isfinite(size) && size > best) best = size, name = key;
  }
  return name;
}

class JudgeTrial {
 public:
  explicit JudgeTrial(const Context& context)
      : context_(context), thresholds_(context.manifest().at("thresholds")), dtype_(working_dtype(context)) {}

  json run() {
    const JobForm form = job_form(context_);
    const char* step = form.optimizers ? "gradients" : "forward";
    report_["known_good"] = compare_sets(context_, {step, 0, "base", "reference", "repeat"}).stopped.empty() &&
                            compare_sets(context_, {"state", 0, "base", "reference", "repeat"}).stopped.empty();
    report_["faults"] = json::array();
    if (form.optimizers) {
      load("gradients");
      if (const std::string name = largest(*reference_, [](auto&) { return true; }); !name.empty()) {
        attempt("dropped gradient", name, {0, 0});
      }
    }
    if (form.updates) {
      load("state");
      const json weights = context_.need("reference", "base", "inputs").at("weights");
      scale("weight", largest(*reference_, [&](const std::string& name) { return weights.contains(name); }));
    }
    load("forward");
    const auto is_output = [](const std::string& name) {
      return name.starts_with("output") || name.starts_with("forward/");
    };
    const std::string output = largest(*reference_, is_output);
    if (!form.updates) scale("output", output);
    if (!output.empty() && reference_->tensors().at(output).count() > 1)
      attempt("outputs in another order", output, {1, 1});
    return report_;
  }

 private:
  void scale(const std::string& what, const std::string& name) {
    if (name.empty()) return;
    const double factor = dtype_ == "bfloat16" || dtype_ == "float16" ? 1.1 : 1.01;
    attempt(what + " scaled by " + json(factor).dump(), name, {factor, 0});
    smallest(name);
  }

  void load(const std::string& what) {
    reference_.emplace(context_.verified(context_.tensors("reference", "base", what, 0)));
    exact_.reset();
    if (const std::string judge = judge_file(context_, {what, 0}); !judge.empty())
      exact_.emplace(context_.verified(judge));
  }

  // Whether the judge stops the reference's own tensor with a fault in it.
  bool caught(const std::string& name, const numerics::Fault& fault) {
    const TensorView& tensor = reference_->tensors().at(name);
    numerics::Pair pair{tensor, tensor, std::nullopt, numerics::rule_for(thresholds_, tensor.dtype), fault};
    std::vector<numerics::Stream> streams = {{&reference_->file()}};
    if (exact_) {
      streams.push_back({&exact_->file()});
      const auto judge = exact_->tensors().find(name);
      if (judge != exact_->tensors().end() && judge->second.shape == tensor.shape) pair.exact = judge->second;
    }
    return !numerics::judge_pairs({pair}, streams).front().passed;
  }

  void attempt(const std::string& fault, const std::string& name, const numerics::Fault& how) {
    report_["faults"].push_back({{"fault", fault}, {"tensor", name}, {"caught", caught(name, how)}});
  }

  void smallest(const std::string& name) {
    int power = 0;
    while (power < 60 && caught(name, {1 + std::ldexp(1.0, -power - 1), 0})) ++power;
    const double f = std::ldexp(1.0, -power);
    std::ostringstream text;
    text.precision(2);
    text << "the smallest scaling of " << name << " that is seen is 1 + " << f;
    report_["smallest_seen"] = {{"tensor", name}, {"factor", 1 + f}};
    report_["smallest_text"] = text.str();
  }

  const Context& context_;
  const json& thresholds_;
  std::string dtype_;
  std::optional<TensorFile> reference_, exact_;
  json report_;
};

}  // namespace

json try_the_judge(const Context& context) { return JudgeTrial(context).run(); }

}  // namespace tpupilot::pilot
