#include "support/run.h"

#include <algorithm>

#include "pjrt/client.h"

namespace tpupilot::test {
namespace {

pjrt::ElementType pjrt_type(hlo::Elem elem) {
  using hlo::Elem;
  using pjrt::ElementType;
  switch (elem) {
    case Elem::Pred:
      return ElementType::PRED;
    case Elem::S8:
      return ElementType::S8;
    case Elem::S16:
      return ElementType::S16;
    case Elem::S32:
      return ElementType::S32;
    case Elem::S64:
      return ElementType::S64;
    case Elem::U8:
      return ElementType::U8;
    case Elem::U16:
      return ElementType::U16;
    case Elem::U32:
      return ElementType::U32;
    case Elem::U64:
      return ElementType::U64;
    case Elem::F16:
      return ElementType::F16;
    case Elem::BF16:
      return ElementType::BF16;
    case Elem::F32:
      return ElementType::F32;
    case Elem::F64:
      return ElementType::F64;
    case Elem::C64:
      return ElementType::C64;
    case Elem::C128:
      return ElementType::C128;
    case Elem::Invalid:
      break;
  }
  throw std::invalid_argument("[evaluate] a value of the element type Invalid");
}

pjrt::Shape shape_of(const hlo::Type& type) { return {pjrt_type(type.elem), type.dims}; }

// Never destroyed, as the plugin's own client is not.
pjrt::Client& client() {
  static const auto* client = new auto(pjrt::Client::create(pjrt::Plugin::load(TPUPILOT_TEST_PLUGIN)));
  return **client;
}

}  // namespace

std::vector<Array> evaluate(const std::string& module, const std::vector<hlo::Type>& results,
                            const std::vector<Array>& inputs, const pjrt::CompileOptions& options, bool prompt) {
  std::vector<pjrt::Shape> shapes;
  std::vector<std::shared_ptr<pjrt::Buffer>> buffers;
  std::vector<pjrt::Buffer*> arguments;
  for (const Array& input : inputs) {
    shapes.push_back(shape_of(input.type));
    buffers.push_back(client().from_host(input.bytes.data(), pjrt_type(input.type.elem), input.type.dims, 0));
    arguments.push_back(buffers.back().get());
    arguments.back()->wait();
  }
  const auto executable = client().compile(module, options, shapes);
  if (executable->num_outputs() != results.size()) {
    throw std::logic_error("[evaluate] the program has " + std::to_string(executable->num_outputs()) +
                           " results, not " + std::to_string(results.size()));
  }
  std::vector<std::shared_ptr<pjrt::Buffer>> outputs(results.size());
  executable->execute(arguments, 0, outputs);
  if (prompt && !std::all_of(outputs.begin(), outputs.end(), [](const auto& o) { return o->is_ready(); })) {
    throw std::logic_error("[evaluate] a small element-wise program is not done when Execute returns: " + module);
  }
  std::vector<Array> arrays;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!(outputs[i]->shape() == shape_of(results[i]))) {
      throw std::logic_error("[evaluate] result " + std::to_string(i) + " is " + outputs[i]->shape().str() + ", not " +
                             results[i].str());
    }
    arrays.push_back({results[i], std::vector<char>(outputs[i]->byte_size())});
    outputs[i]->copy_to_host(arrays[i].bytes.data(), arrays[i].bytes.size());
  }
  return arrays;
}

std::vector<Array> evaluate(const hlo::Builder& b, const hlo::Values& results, const std::vector<Array>& inputs,
                            const pjrt::CompileOptions& options) {
  if (inputs.size() != b.parameters().size()) {
    throw std::invalid_argument("[evaluate] " + std::to_string(inputs.size()) + " inputs for " +
                                std::to_string(b.parameters().size()) + " parameters");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].type != b.parameters()[i].type) {
      throw std::invalid_argument("[evaluate] input " + std::to_string(i) + " is " + inputs[i].type.str() + ", not " +
                                  b.parameters()[i].type.str());
    }
  }
  std::vector<hlo::Type> types;
  for (const hlo::Value& v : results) types.push_back(v.type);
  return evaluate(b.module(results), types, inputs, options, b.small_elementwise());
}

}  // namespace tpupilot::test
