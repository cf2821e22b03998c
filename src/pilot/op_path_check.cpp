// The inventory: every overload that a real step dispatches, as this backend serves it and as the target would.
#include <map>
#include <set>
#include <tuple>

#include "pilot/context.h"
#include "pilot/families.h"
#include "pilot/job_form.h"
#include "pilot/target_ops.h"

namespace tpupilot::pilot::inventory {

using nlohmann::json;

namespace {

// What a step's trace comes to.
struct Path {
  json rows = json::array();
  std::map<std::string, size_t> here;  // overloads by how this backend serves them
  // Sentences about overloads, by what follows from them.
  std::vector<std::string> fails_there, fails_here, doubtful, unknown;
  size_t calls = 0;
};

std::string called(const json& op) {
  const size_t count = op.at("count");
  const std::string dtype = op.at("dtype");
  return (dtype.empty() ? "" : dtype + ", ") + std::to_string(count) + (count == 1 ? " call" : " calls");
}

class Tracer {
 public:
  Tracer(const json& traced, const TargetOps* target)
      : kernels_(traced.at("kernels")), fallbacks_(traced.value("fallbacks", json::object())), target_(target) {}

  void add(const json& op) {
    const json& kernel = kernels_.at(op.at("op").get<std::string>());
    const std::string full = kernel.at("name");
    const std::string overload = full.starts_with("aten::") ? full.substr(6) : full;
    const bool fell_back = fallbacks_.is_object() && (fallbacks_.contains(overload) || fallbacks_.contains(full));
    const std::string here = fell_back ? "fallback" : kernel.at("kernel").get<std::string>();
    json row = {{"op", full}, {"dtype", op.at("dtype")}, {"count", op.at("count")}, {"here", here}};
    path_.calls += op.at("count").get<size_t>();
    if (seen_.insert(overload).second) ++path_.here[here];
    const std::string where = full + " (" + called(op) + ")";
    if (here == "fallback") path_.fails_here.push_back(where + " falls back to the CPU");
    if (here == "none") path_.fails_here.push_back(where + " has no kernel");
    if (target_) compare(overload, here, where, op.at("dtype"), row);
    path_.rows.push_back(row);
  }

  Path path() { return std::move(path_); }

 private:
  void compare(const std::string& overload, const std::string& here, const std::string& where, const std::string& dtype,
               json& row) {
    const TargetOps::State state = target_->state(overload);
    row["target"] = state_name(state);
    if (state == TargetOps::State::Absent) path_.fails_there.push_back(where + " is absent");
    if (state == TargetOps::State::Unknown && here != "composite") path_.unknown.push_back(where);
    for (const TargetFault& fault : target_->faults(overload, dtype)) {
      row["target"] = "known wrong";
      row["faults"].push_back(describe(fault));
      (fault.alone ? path_.fails_there : path_.doubtful).push_back(where + " is known for " + describe(fault));
    }
  }

  const json &kernels_, fallbacks_;
  const TargetOps* target_;
  std::set<std::string> seen_;
  Path path_;
};

std::string first_of(const std::vector<std::string>& sentences) {
  std::string text;
  for (size_t i = 0; i < sentences.size() && i < 3; ++i) text += (i ? "; " : "") + sentences[i];
  if (sentences.size() > 3) text += "; and " + std::to_string(sentences.size() - 3) + " more";
  return text;
}

Path path_of(const json& traced, const std::string& device, const TargetOps* target) {
  Tracer tracer(traced, target);
  for (const json& op : traced.at("ops")) {
    if (op.at("device").get<std::string>().starts_with(device)) tracer.add(op);
  }
  return tracer.path();
}

// The verdict and its sentence; what the target lacks comes first.
std::pair<Verdict, std::string> ruled(const Path& path, const TargetOps* target) {
  if (!path.fails_there.empty())
    return {Verdict::Stop, "will fail on " + target->title() + ": " + first_of(path.fails_there)};
  if (!path.fails_here.empty()) return {Verdict::Stop, first_of(path.fails_here)};
  if (!path.doubtful.empty())
    return {Verdict::NotJudged, "may fail on " + target->title() + ": " + first_of(path.doubtful)};
  if (!path.unknown.empty())
    return {Verdict::NotJudged,
            "not ATen's, so that nothing is known of it on " + target->title() + ": " + first_of(path.unknown)};
  const std::string all = std::to_string(path.rows.size()) + " overloads and dtypes of one step, " +
                          std::to_string(path.calls) + " calls: ";
  if (!target)
    return {Verdict::Pass, all + "none missing here; candidate.profile is none, so nothing is said of a TPU"};
  return {Verdict::Pass,
          all + "none absent or known wrong in " + target->title() + " (list of " + target->date() + ")"};
}

}  // namespace

CheckResult op_path(const Context& context) {
  CheckResult result;
  result.rule = {{"absent_or_known_wrong_in_the_target", 0}, {"missing", 0}, {"fallbacks", 0}};
  result.evidence = {"candidate/events.jsonl"};
  const std::string device = context.settings().text("candidate", "device"), kind = device.substr(0, device.find(':'));
  if (kind == "cpu") return not_applicable("the candidate's device is the CPU itself: its overloads are not a TPU's");
  const std::string name = context.settings().text("candidate", "profile");
  const TargetOps* target = name == "none" ? nullptr : find_target_ops(name);
  if (!target && name != "none") {
    result.why = "no dated list of operators for " + name + "; known: " + known_targets();
    return result;
  }
  const json traced = context.need("candidate", "placement", "ops");
  if (!traced.contains("kernels")) {
    result.why = "the worker did not record how the dispatcher serves each overload";
    return result;
  }
  const Path path = path_of(traced, kind, target);
  result.measured = {{"profile", name},
                     {"fails_there", path.fails_there},
                     {"fails_here", path.fails_here},
                     {"doubtful", path.doubtful},
                     {"unknown", path.unknown},
                     {"here", path.here},
                     {"calls", path.calls},
                     {"path", path.rows}};
  if (target) result.measured["profile_date"] = target->date();
  if (path.rows.empty()) {
    result.why = "no op of the step ran on `" + device + "`";
    return result;
  }
  std::tie(result.verdict, result.why) = ruled(path, target);
  return result;
}

}  // namespace tpupilot::pilot::inventory
