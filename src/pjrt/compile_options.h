// How a program is compiled: a plain value that becomes the bytes of XLA's CompileOptionsProto.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>

namespace tpupilot::pjrt {

using OverrideValue = std::variant<bool, int64_t, std::string>;

struct Override {
  OverrideValue value;
  // Speed only: left out for a plugin that does not know it. An override that is not optional must be accepted.
  bool optional = false;
};

struct CompileOptions {
  // Names of XLA's DebugOptions fields, without dashes; enums by their name.
  std::map<std::string, Override> overrides;
  // May run on any device of the client, not only on the first. A client of one device ignores it (it costs 0.3 us).
  bool portable = true;

  // The buffers of results are described as one-dimensional, whatever dims the program gives them. Only for XLA's CPU
  // client, where a buffer is an argument of any shape of as many bytes.
  bool flat_results = false;

  void set(const std::string& name, OverrideValue value) { overrides[name] = {std::move(value), false}; }
  void set_if_known(const std::string& name, OverrideValue value) { overrides[name] = {std::move(value), true}; }
  void set_optimization_level(int level);  // 0..3, xla_backend_optimization_level
};

// CompileOptionsProto: one replica, one partition, all counts explicit (a plugin aborts when they are missing), and the
// overrides in the order of their names, less `without`.
std::string serialize(const CompileOptions& options, const std::set<std::string>& without = {});

// All keep NaN in min and max, and round where the program says so, as ATen does.
CompileOptions eager_options();   // one op a program: quick to compile
CompileOptions region_options();  // many ops a program: quick to run
CompileOptions test_options();    // quickest to compile, slow to run on large shapes

}  // namespace tpupilot::pjrt
