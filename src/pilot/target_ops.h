// The operators of a release of the TPU backend: what it registers, refuses and gets wrong (data/targets/, dated; made
// by scripts/target_profile.py). What a rehearsal shows is compared with it: better than the target is not ready for
// it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tpupilot::pilot {

// One entry of PyTorch's op database that the release failed, and how.
struct TargetFault {
  std::string entry, mode, dtype, status;  // "cumprod", "backward", "float32", "error"
  bool alone = false;                      // no other overload of that entry can be meant
};

class TargetOps {
 public:
  enum class State {
    Registered,  // the release has a kernel
    Core,        // core's composite kernel serves it from other overloads
    Absent,      // neither: a call raises
    Unknown,     // not ATen's
  };

  // Texts as in data/targets/.
  TargetOps(std::string_view profile, std::string_view holes);

  std::string_view name() const { return name_; }      // "torch_tpu==0.2.0"
  std::string title() const;                           // "torch_tpu 0.2.0"
  const std::string& date() const { return date_; }    // of the profile
  const std::string& torch() const { return torch_; }  // whose dispatcher was read
  const std::set<std::string, std::less<>>& registered() const { return registered_; }
  // Registered there, and missing in this backend: overload and reason.
  const std::map<std::string, std::string, std::less<>>& holes() const { return holes_; }

  // Overloads without the "aten::": "add.out", "relu".
  State state(std::string_view overload) const;
  // The faults of an overload in a dtype; all of them for an empty dtype.
  std::vector<TargetFault> faults(std::string_view overload, std::string_view dtype = "") const;

 private:
  std::string name_, date_, torch_;
  std::set<std::string, std::less<>> registered_, absent_;
  std::map<std::string, std::vector<TargetFault>, std::less<>> faults_;
  std::map<std::string, std::string, std::less<>> holes_;
};

std::string_view state_name(TargetOps::State state);  // "registered", "core", "absent", "unknown"

// "cumprod (backward, float32): error"
std::string describe(const TargetFault& fault);

// Null if there is no such list. Built once, any thread.
const TargetOps* find_target_ops(std::string_view name);
std::string known_targets();

}  // namespace tpupilot::pilot
