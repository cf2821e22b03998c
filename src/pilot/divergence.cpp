#include "pilot/divergence.h"

#include <algorithm>
#include <vector>

#include "pilot/comparison.h"
#include "pilot/evidence_tensors.h"
#include "pilot/families.h"
#include "pilot/repro.h"

namespace tpupilot::pilot {

using nlohmann::json;
using numerics::Rule;

namespace {

// "<order>/<module>/in|out/<path>" of a modules file.
struct ModuleName {
  std::string prefix, module;  // "<order>/<module>", "<module>"
  bool is_output = false;
};

ModuleName parse_name(const std::string& name) {
  const size_t first = name.find('/'), second = name.find('/', first + 1);
  if (first == std::string::npos || second == std::string::npos)
    throw NotJudgedError("a module trace names a tensor `" + name + "`");
  return {name.substr(0, second), name.substr(first + 1, second - first - 1), name.compare(second, 5, "/out/") == 0};
}

struct ModuleVerdict {
  std::string prefix, module;
  bool inputs_agree = true, outputs_agree = true;
  double max_abs = 0;
};

// In the order in which the modules ended: an inner module comes before the one that holds it.
std::vector<ModuleVerdict> judge_modules(const Context& context) {
  EvidenceTensors reference(context, context.tensors("reference", "trace", "modules", 0)),
      candidate(context, context.tensors("candidate", "trace", "modules", 0));
  const json& thresholds = context.manifest().at("thresholds");
  const auto other_of = [&](const std::string& name, const numerics::TensorView& tensor) {
    const auto other = candidate.tensors().find(name);
    const bool comparable = other != candidate.tensors().end() && other->second.dtype == tensor.dtype &&
                            other->second.shape == tensor.shape;
    return comparable ? &other->second : nullptr;
  };
  std::vector<numerics::Pair> pairs;
  for (const auto& [name, tensor] : reference.tensors()) {
    if (const auto* other = other_of(name, tensor))
      pairs.push_back({tensor, *other, std::nullopt, numerics::rule_for(thresholds, tensor.dtype)});
  }
  const auto judgements = judge_evidence(pairs, {&reference, &candidate});
  auto judged = judgements.begin();
  std::vector<ModuleVerdict> modules;
  for (const auto& [name, tensor] : reference.tensors()) {
    const ModuleName parsed = parse_name(name);
    if (modules.empty() || modules.back().prefix != parsed.prefix) modules.push_back({parsed.prefix, parsed.module});
    bool agrees = false;
    if (other_of(name, tensor)) {
      agrees = judged->passed;
      if (parsed.is_output)
        modules.back().max_abs = std::max(modules.back().max_abs, judged->row.at("max_abs").get<double>());
      ++judged;
    }
    bool& part = parsed.is_output ? modules.back().outputs_agree : modules.back().inputs_agree;
    part = part && agrees;
  }
  return modules;
}

std::optional<ModuleVerdict> first_module(const Context& context) {
  for (const ModuleVerdict& module : judge_modules(context)) {
    if (module.inputs_agree && !module.outputs_agree) return module;
  }
  return std::nullopt;
}

bool stopped(const Context& context, const char* id) {
  const auto judged = context.results().find(id);
  return judged != context.results().end() && judged->second.verdict == Verdict::Stop;
}

}  // namespace

CheckResult parity::first_divergence(const Context& context) {
  CheckResult result;
  const std::pair<const char*, const char*> later[] = {
      {"par.loss",
       "every module's output agrees: the difference arises in the loss function or in what it is given (labels, "
       "weights)"},
      {"par.gradients", "every module's output and the loss agree: the difference arises in the backward pass"},
      {"par.next-step", "outputs, loss and gradients agree: the difference arises in the update"}};
  if (!stopped(context, "par.forward") && std::none_of(std::begin(later), std::end(later), [&](const auto& entry) {
        return stopped(context, entry.first);
      })) {
    result.verdict = Verdict::NotApplicable;
    result.why = "nothing diverged";
    return result;
  }
  result.rule = {{"named", "the first module whose inputs agree and whose output does not"}};
  result.evidence = {context.tensors("reference", "trace", "modules", 0),
                     context.tensors("candidate", "trace", "modules", 0)};
  if (const auto module = first_module(context)) {
    result.verdict = Verdict::Pass;
    result.measured = {{"module", module->module}, {"prefix", module->prefix}, {"max_abs", module->max_abs}};
    result.why = "located: module `" + module->module +
                 "` is the first whose inputs agree and whose output does not; op level is not in this release";
    return result;
  }
  for (const auto& [id, words] : later) {
    if (!stopped(context, id)) continue;
    result.verdict = Verdict::Pass;
    result.measured = {{"module", nullptr}, {"after", id}};
    result.why = std::string("located: ") + words;
    if (std::string(id) == "par.gradients") {
      const SetResult gradients = compare_sets(context, {"gradients", 0});
      result.measured["gradients"] = gradients.stopped;
      if (!gradients.stopped.empty()) result.why += "; worst gradient: " + gradients.stopped.front();
    }
    return result;
  }
  result.why = "no module has equal inputs and another output: the inputs of the first module differ already";
  return result;
}

std::string write_isolate(const Job& job, RunState& state, const Context& context) {
  const auto located = context.results().find("par.first-divergence");
  if (located == context.results().end() || !located->second.measured.value("module", json()).is_string()) return "";
  const std::string module = located->second.measured["module"];
  Repro repro;
  repro.job_file = job.file;
  repro.weights = context.verified("reference/checkpoints/initial/state.safetensors");
  repro.reference = context.verified(context.tensors("reference", "trace", "modules", 0));
  repro.candidate = context.verified(context.tensors("candidate", "trace", "modules", 0));
  repro.prefix = located->second.measured["prefix"];
  repro.module = module == "(root)" ? "" : module;
  repro.device = context.settings().text("candidate", "device");
  const Rule rule = numerics::rule_for(context.manifest().at("thresholds"), "float32");
  repro.rtol = rule.rtol;
  repro.atol = rule.atol;
  write_repro(repro, state.folder() / "isolate");
  for (const char* name :
       {"repro.py", "job.py", "weights.safetensors", "reference.safetensors", "candidate.safetensors"}) {
    state.add_file(std::string("isolate/") + name);
  }
  return "isolate";
}

}  // namespace tpupilot::pilot
