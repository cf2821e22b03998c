#include "aten/execute.h"

#include <algorithm>

#include "aten/element.h"

namespace tpupilot::aten {

std::shared_ptr<pjrt::Executable> compile(const hlo::Builder& builder, const hlo::Values& results,
                                          const pjrt::CompileOptions& options) {
  std::vector<pjrt::Shape> parameters;
  for (const hlo::Value& p : builder.parameters()) parameters.emplace_back(pjrt_type_of(p.elem()), p.dims());
  const std::string text = builder.module(options.flat_results ? builder.before_flattening(results) : results);
  return runtime().cache->get_or_compile(text, options, parameters).executable;
}

void execute(const pjrt::Executable& executable, std::span<pjrt::Buffer* const> arguments, c10::DeviceIndex device,
             std::span<BufferRef> results, const std::string& what, bool prompt) {
  prompt =
      prompt && std::all_of(arguments.begin(), arguments.end(), [](const pjrt::Buffer* a) { return a->has_values(); });
  executable.execute(arguments, device, results);
  for (const BufferRef& r : results) {
    if (debug()) {
      r->wait();
    } else if (prompt) {
      r->assume_values();
    } else {
      note_pending(r, device, what);
    }
  }
}

}  // namespace tpupilot::aten
