#include "pilot/target_ops.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "pilot/target_data.h"

namespace tpupilot::pilot {

using nlohmann::json;

TargetOps::TargetOps(std::string_view profile, std::string_view holes) {
  const json data = json::parse(profile);
  name_ = data.at("target");
  date_ = data.at("date");
  torch_ = data.at("torch");
  registered_ = data.at("registered").get<decltype(registered_)>();
  absent_ = data.at("absent").get<decltype(absent_)>();
  for (const json& fault : data.at("faults")) {
    const TargetFault found{fault.at("entry"), fault.at("mode"), fault.at("dtype"), fault.at("status"),
                            fault.at("overloads").size() == 1};
    for (const std::string overload : fault.at("overloads")) faults_[overload].push_back(found);
  }
  std::istringstream lines{std::string(holes)};
  for (std::string line; std::getline(lines, line);) {
    const size_t tab = line.find('\t');
    if (line.starts_with('#') || tab == std::string::npos) continue;
    holes_[line.substr(0, tab)] = line.substr(tab + 1);
  }
}

std::string TargetOps::title() const {
  const size_t equals = name_.find("==");
  return equals == std::string::npos ? name_ : name_.substr(0, equals) + " " + name_.substr(equals + 2);
}

TargetOps::State TargetOps::state(std::string_view overload) const {
  if (registered_.contains(overload)) return State::Registered;
  if (absent_.contains(overload)) return State::Absent;
  return overload.find("::") == std::string_view::npos ? State::Core : State::Unknown;
}

std::vector<TargetFault> TargetOps::faults(std::string_view overload, std::string_view dtype) const {
  std::vector<TargetFault> found;
  if (const auto known = faults_.find(overload); known != faults_.end()) {
    for (const TargetFault& fault : known->second) {
      if (dtype.empty() || fault.dtype == dtype) found.push_back(fault);
    }
  }
  return found;
}

std::string_view state_name(TargetOps::State state) {
  static constexpr std::string_view kNames[] = {"registered", "core", "absent", "unknown"};
  return kNames[static_cast<size_t>(state)];
}

std::string describe(const TargetFault& fault) {
  return fault.entry + " (" + fault.mode + ", " + fault.dtype + "): " + fault.status;
}

namespace {

const std::vector<TargetOps>& targets() {
  static const std::vector<TargetOps> table = {{torch_tpu_0_2_0(), torch_tpu_0_2_0_holes()}};
  return table;
}

}  // namespace

const TargetOps* find_target_ops(std::string_view name) {
  for (const TargetOps& target : targets()) {
    if (target.name() == name) return &target;
  }
  return nullptr;
}

std::string known_targets() {
  std::string names;
  for (const TargetOps& target : targets()) names += (names.empty() ? "" : ", ") + std::string(target.name());
  return names;
}

}  // namespace tpupilot::pilot
