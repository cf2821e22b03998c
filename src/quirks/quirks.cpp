#include "quirks/quirks.h"

#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "pjrt/error.h"

namespace tpupilot::quirks {
namespace {

using pjrt::ElementType;
using Values = std::vector<double>;

// One function of f64, and what is right. A plugin has one form for single elements and another for vectors, and may
// unroll the latter: hence many elements.
constexpr int64_t kCount = 1001, kMiddle = 500;
constexpr std::string_view kType = "tensor<1001xf64>";

struct Probe {
  std::string_view name;
  bool hlo::Target::* flag;
  std::string_view op;
  double (*right)(double);
};

constexpr std::array<Probe, 1> kProbes = {{
    {"constant_atan2_is_wrong", &hlo::Target::constant_atan2_is_wrong, "chlo.atan",
     [](double x) { return std::atan(x); }},
}};

std::string program_of(const Probe& probe) {
  const std::string t(kType);
  return "module @probe { func.func @main(%x: " + t + ") -> " + t + " { %0 = \"" + std::string(probe.op) +
         "\"(%x) : (" + t + ") -> " + t + " return %0 : " + t + " } }";
}

Values inputs() {  // -10 to 10
  Values x(kCount);
  for (int64_t i = 0; i < kCount; ++i) x[i] = static_cast<double>(i - kMiddle) / 50;
  return x;
}

Values run(pjrt::Client& client, const pjrt::Executable& program, const Values& input) {
  const std::array<int64_t, 1> dims = {kCount};
  const auto argument = client.from_host(input.data(), ElementType::F64, dims, 0);
  const std::array<pjrt::Buffer*, 1> arguments = {argument.get()};
  std::array<std::shared_ptr<pjrt::Buffer>, 1> outputs;
  program.execute(arguments, 0, outputs);
  Values output(input.size());
  outputs[0]->copy_to_host(output.data(), output.size() * sizeof(double));
  return output;
}

// The limit is far above any rounding of an f64 function, far below any fault worth a form of its own.
bool wrong(const Values& input, const Values& output, const Probe& probe) {
  for (size_t i = 0; i < input.size(); ++i) {
    if (!(std::abs(output[i] - probe.right(input[i])) <= 1e-9)) return true;
  }
  return false;
}

std::optional<bool> shows(const Probe& probe, pjrt::Client& client, cache::ExecutableCache& executables,
                          const pjrt::CompileOptions& options, cache::NoteStore& notes) {
  try {
    const std::vector<pjrt::Shape> parameters = {{ElementType::F64, {kCount}}};
    const std::string program = program_of(probe);
    const std::string key = std::string(probe.name) + " " + executables.key(program, options, parameters).hex();
    if (const auto known = notes.find(key)) return *known == "1";
    const auto executable = executables.get_or_compile(program, options, parameters).executable;
    const Values input = inputs();
    const bool found = wrong(input, run(client, *executable, input), probe);
    notes.keep(key, found ? "1" : "0");
    return found;
  } catch (const pjrt::Error&) {
    return std::nullopt;
  }
}

}  // namespace

hlo::Platform platform_of(const pjrt::Client& client) {
  if (client.platform_name() == "cpu") return hlo::Platform::Cpu;
  return client.platform_name() == "tpu" ? hlo::Platform::Tpu : hlo::Platform::Cuda;
}

void probe(hlo::Target& target, pjrt::Client& client, cache::ExecutableCache& executables,
           const pjrt::CompileOptions& options, cache::NoteStore& notes) {
  for (const Probe& probe : kProbes) {
    if (const auto found = shows(probe, client, executables, options, notes)) target.*probe.flag = *found;
  }
}

}  // namespace tpupilot::quirks
