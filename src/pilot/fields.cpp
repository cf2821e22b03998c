#include "pilot/fields.h"

#include "evidence/digest.h"
#include "pilot/context.h"

namespace tpupilot::pilot {

using nlohmann::json;

const std::vector<std::string_view>& field_names() {
  static const std::vector<std::string_view> names = {"python",
                                                      "platform",
                                                      "packages",
                                                      "lock_sha256",
                                                      "torch",
                                                      "backend_vendor",
                                                      "plugin",
                                                      "plugin_sha256",
                                                      "pjrt_api",
                                                      "target_profile",
                                                      "tpu_generation",
                                                      "slice",
                                                      "topology",
                                                      "model_revision",
                                                      "config_sha256",
                                                      "weights_sha256",
                                                      "data_sha256",
                                                      "dtype",
                                                      "autocast",
                                                      "batch_shape",
                                                      "signatures",
                                                      "warmup_steps",
                                                      "compile_seconds_cold",
                                                      "compile_seconds_warm",
                                                      "throughput",
                                                      "throughput_interval",
                                                      "step_seconds_p50_p90_p99",
                                                      "peak_memory_bytes",
                                                      "peak_memory_source",
                                                      "output_difference",
                                                      "resume",
                                                      "custom_ops",
                                                      "thresholds",
                                                      "thresholds_sha256",
                                                      "thresholds_set_at",
                                                      "price",
                                                      "cost_per_million",
                                                      "reference_throughput",
                                                      "reference_cost_per_million",
                                                      "mfu",
                                                      "goodput",
                                                      "failures",
                                                      "parent",
                                                      "owner",
                                                      "expires",
                                                      "command",
                                                      "not_tested"};
  return names;
}

bool is_unknown(const json& field) {
  return field.is_null() || (field.is_string() && field.get<std::string>().rfind("unknown", 0) == 0);
}

namespace {

json or_unknown(const json& value, const std::string& reason) {
  return value.is_null() ? json("unknown: " + reason) : value;
}

json member(const json& object, const char* name) {
  return object.is_object() && object.contains(name) ? object[name] : json();
}

class Fields {
 public:
  explicit Fields(const Context& context) : context_(context) {}

  json all() {
    environment();
    target();
    job();
    measured();
    decision();
    return fields_;
  }

 private:
  void environment() {
    const auto found = context_.find("candidate", "environment", "environment");
    const json environment = found ? *found : json::object();
    const std::string reason = "the candidate's environment was not recorded";
    fields_["python"] = or_unknown(member(environment, "python"), reason);
    fields_["platform"] = or_unknown(member(environment, "platform"), reason);
    fields_["torch"] = or_unknown(member(member(environment, "torch"), "version"), reason);
    json packages;
    for (const json& package : environment.value("packages", json::array()))
      packages[package.at("name").get<std::string>()] = package.at("version");
    fields_["packages"] = or_unknown(packages, reason);
    fields_["lock_sha256"] = found ? json(context_.lock_hash("candidate")) : json("unknown: " + reason);

    const json backend = member(member(environment, "device"), "backend");
    const std::string none = context_.self_rehearsal() ? "the device is torch's own" : "the backend does not say";
    fields_["backend_vendor"] = or_unknown(member(backend, "vendor"), none);
    for (const char* name : {"plugin", "plugin_sha256", "pjrt_api"})
      fields_[name] = or_unknown(member(backend, name), none);
    platform_ = member(backend, "platform_name").is_string() ? backend["platform_name"].get<std::string>()
                                                             : context_.settings().text("candidate", "device");
  }

  void target() {
    fields_["target_profile"] = context_.settings().text("candidate", "profile");
    const std::string none = "none: rehearsal on " + platform_;
    for (const char* name : {"tpu_generation", "slice", "topology"}) fields_[name] = none;
  }

  void job() {
    const json& manifest = context_.manifest();
    fields_["model_revision"] = or_unknown(member(member(manifest, "job"), "revision"),
                                           "the job is under no version control; name it with job.revision");
    fields_["config_sha256"] = or_unknown(member(manifest, "config_sha256"), "no manifest");
    const std::string reason = "gate 1 did not run";
    const auto inputs = context_.find("candidate", "base", "inputs");
    fields_["weights_sha256"] = inputs ? json(evidence::sha256_of(inputs->at("weights"))) : json("unknown: " + reason);
    fields_["signatures"] = inputs ? inputs->at("signatures") : json("unknown: " + reason);
    json batches = json::array(), shape;
    if (context_.ended("candidate", "base")) {
      for (const json& step : context_.all("candidate", "base", "step")) {
        batches.push_back(member(step, "batch_sha256"));
        if (shape.is_null()) shape = member(step, "signature");
      }
    }
    fields_["data_sha256"] = batches.empty() ? json("unknown: " + reason) : json(evidence::sha256_of(batches));
    fields_["batch_shape"] = or_unknown(shape, reason);
    const auto types = context_.results().find("par.dtype");
    fields_["dtype"] =
        or_unknown(types == context_.results().end() ? json() : member(types->second.measured, "parameters"), reason);
    fields_["autocast"] = context_.settings().text("reference", "autocast").empty()
                              ? "off"
                              : context_.settings().text("reference", "autocast");
    fields_["warmup_steps"] = context_.settings().integer("compile", "warmup_steps");
  }

  void measured() {
    for (const char* name : {"compile_seconds_cold", "compile_seconds_warm", "throughput", "throughput_interval",
                             "step_seconds_p50_p90_p99", "cost_per_million", "reference_throughput",
                             "reference_cost_per_million", "goodput", "failures"}) {
      fields_[name] = "unknown: gate 3 is not in this release";
    }
    fields_["mfu"] = "unknown: a rehearsal has no peak to compare with";
    const auto counters = context_.find("candidate", "base", "counters");
    fields_["peak_memory_bytes"] =
        or_unknown(counters ? member(*counters, "peak_memory_bytes") : json(), "the device does not say");
    fields_["peak_memory_source"] =
        or_unknown(counters ? member(*counters, "peak_memory_source") : json(), "the device does not say");
    for (const char* id : {"par.forward", "par.loss", "par.gradients", "par.next-step", "par.drift"}) {
      const auto judged = context_.results().find(id);
      if (judged == context_.results().end()) continue;
      fields_["output_difference"][id] = {{"verdict", verdict_name(judged->second.verdict)},
                                          {"why", judged->second.why}};
    }
    if (!fields_.contains("output_difference")) fields_["output_difference"] = "unknown: gate 1 did not run";
    const auto resume = context_.results().find("ckpt.resume");
    fields_["resume"] = resume == context_.results().end()
                            ? json("unknown: gate 1 did not run")
                            : json{{"verdict", verdict_name(resume->second.verdict)}, {"why", resume->second.why}};
    json operators = json::object();
    const auto named = context_.find("candidate", "custom-ops", "operators");
    if (named && named->at("names").empty()) fields_["custom_ops"] = "none: the job names no custom operators";
    for (const char* id : {"op.common", "op.boundary"}) {
      const auto judged = context_.results().find(id);
      if (judged == context_.results().end() || fields_.contains("custom_ops")) continue;
      operators[id] = {{"verdict", verdict_name(judged->second.verdict)}, {"why", judged->second.why}};
    }
    if (!operators.empty()) {
      operators["names"] = named ? named->at("names") : json();
      fields_["custom_ops"] = operators;
    }
    if (!fields_.contains("custom_ops")) fields_["custom_ops"] = "unknown: gate 1 did not run";
  }

  void decision() {
    const json& manifest = context_.manifest();
    const Settings& settings = context_.settings();
    for (const char* name : {"thresholds", "thresholds_sha256"}) fields_[name] = member(manifest, name);
    fields_["thresholds_set_at"] = member(manifest, "created");
    const double price = settings.number("target", "cost_per_chip_hour");
    fields_["price"] = price > 0 ? json{{"per_chip_hour", price},
                                        {"chips", settings.integer("target", "chips")},
                                        {"currency", settings.text("target", "currency")},
                                        {"date", settings.text("target", "price_date")}}
                                 : json("unknown: target.cost_per_chip_hour is not set");
    fields_["parent"] = manifest.value("parent", json()).is_string() && !manifest["parent"].get<std::string>().empty()
                            ? manifest["parent"]
                            : json("none");
    fields_["owner"] = settings.text("pilot", "owner").empty() ? json("unknown: pilot.owner is not set")
                                                               : json(settings.text("pilot", "owner"));
    fields_["expires"] = "with " + settings.text("candidate", "profile") + ", this job revision and this topology";
    fields_["command"] = or_unknown(member(manifest, "command"), "not recorded");
    json untested = json::array();
    for (const Check& check : registry()) {
      if (!context_.results().contains(std::string(check.id))) untested.push_back(check.id);
    }
    fields_["not_tested"] = untested;
  }

  const Context& context_;
  json fields_ = json::object();
  std::string platform_;
};

}  // namespace

json fields_of(const Context& context) { return Fields(context).all(); }

}  // namespace tpupilot::pilot
