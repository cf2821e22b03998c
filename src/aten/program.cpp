#include "aten/program.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <unordered_map>

#include "aten/cell.h"
#include "aten/closed_ops.h"
#include "aten/element.h"
#include "aten/execute.h"
#include "aten/generator.h"
#include "aten/meta.h"
#include "aten/precision.h"
#include "aten/runtime.h"
#include "aten/storage.h"
#include "layout/layout.h"
#include "ops/promote.h"

namespace tpupilot::aten {
namespace {

using hlo::Value;

// The argument a result goes to, or null for a new tensor.
const at::Tensor* destination(const ResultFacts& result, Arguments arguments) {
  if (result.slot.argument < 0) return nullptr;
  const c10::IValue& value = arguments[result.slot.argument];
  return &(result.slot.element < 0 ? value : value.toListRef()[result.slot.element]).toTensor();
}

// The results of one call: lists element by element, without what was not given.
std::vector<ResultSlot> slots_of(const SchemaFacts& facts, Arguments arguments, const CallContext& call) {
  std::vector<ResultSlot> slots;
  for (const ResultSlot& slot : facts.results) {
    if (slot.argument < 0) {
      slots.push_back(slot);
    } else if (facts.arguments[slot.argument].kind == ArgumentKind::TensorList) {
      const int count = static_cast<int>(arguments[slot.argument].toListRef().size());
      for (int i = 0; i < count; ++i) slots.push_back({slot.argument, i, slot.returned});
    } else if (call.given(facts.arguments[slot.argument].name)) {  // running statistics may be missing
      slots.push_back(slot);
    }
  }
  return slots;
}

// Matrices of this shape, one after the other, with neighbours along a column.
void transpose_strides(TensorFacts& facts) {
  const size_t row = facts.sizes.size() - 2, column = row + 1;
  facts.strides[row] = 1;
  facts.strides[column] = std::max<int64_t>(facts.sizes[row], 1);
}

// What the row's shape function says, and the Meta kernel of the results that it leaves open.
std::vector<TensorFacts> returned_facts(const Overload& overload, Arguments arguments, CallContext& call,
                                        const Key& key) {
  if (!overload.row->shape) {
    return overload.facts.returns > 0 ? run_meta(*overload.handle, arguments, key) : std::vector<TensorFacts>{};
  }
  const std::vector<hlo::Type> types = overload.row->shape(call);
  std::vector<TensorFacts> returned(types.size());
  if (std::any_of(types.begin(), types.end(), [](const hlo::Type& t) { return t.elem == hlo::Elem::Invalid; }))
    returned = run_meta(*overload.handle, arguments, key);
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i].elem == hlo::Elem::Invalid) continue;
    returned.at(i) = {types[i].dims, hlo::contiguous_strides(types[i].dims), dtype_of(types[i].elem)};
  }
  for (const size_t i : overload.row->column_major) transpose_strides(returned[i]);
  return returned;
}

std::vector<ResultFacts> result_facts(const Overload& overload, Arguments arguments, CallContext& call,
                                      const Key& key) {
  const std::vector<TensorFacts> returned = returned_facts(overload, arguments, call, key);
  std::vector<ResultFacts> results;
  size_t next = 0;
  for (const ResultSlot& slot : slots_of(overload.facts, arguments, call)) {
    ResultFacts r;
    r.slot = slot;
    if (slot.returned) {
      TORCH_CHECK(next < returned.size(), "[", overload.facts.overload, "] the shape function gave ", returned.size(),
                  " results");
      const TensorFacts& facts = returned[next++];
      r.strides = facts.strides;
      r.dtype = facts.dtype;
      r.type = {elem_of(r.dtype), facts.sizes};
    } else {
      const at::Tensor& t = *destination(r, arguments);
      r.dtype = t.scalar_type();
      r.type = type_of(t);
    }
    results.push_back(std::move(r));
  }
  return results;
}

// True of in-place calls, and of out= that is an input as well: ATen does not resize what it reads.
bool is_read_too(const Overload& overload, const ResultSlot& slot, const at::Tensor& destination, Arguments arguments) {
  if (slot.argument == 0 && overload.facts.arguments[0].name == "self") return true;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!overload.facts.arguments[i].written && arguments[i].isTensor() && arguments[i].toTensor().is_same(destination))
      return true;
  }
  return false;
}

// Checks the destinations, and gives out= tensors of another size the right one. True if any was resized.
bool prepare_destinations(const Overload& overload, const std::vector<ResultFacts>& results, Arguments arguments) {
  bool resized = false;
  for (const ResultFacts& r : results) {
    const at::Tensor* t = destination(r, arguments);
    if (t == nullptr) continue;
    TORCH_CHECK(t->device().is_privateuseone(), "[", overload.facts.overload, "] the result goes to a ", t->device(),
                " tensor, but the inputs are on the tpu; move it with .to('tpu')");
    if (t->sizes() != c10::IntArrayRef(r.type.dims)) {
      TORCH_CHECK(!is_read_too(overload, r.slot, *t, arguments), "output with shape ", t->sizes(),
                  " doesn't match the broadcast shape ", c10::IntArrayRef(r.type.dims));
      resize_output(*t, r.type.dims);
      resized = true;
    }
    TORCH_CHECK(
        layout::internal_overlap(layout_of(*t)) != layout::Overlap::Yes,
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
        "Please clone() the tensor before performing the operation.");
  }
  return resized;
}

// The flat value that the destination's storage holds afterwards.
// `starts`: of the destination.
Value store(hlo::Builder& b, const Value& value, ResultFacts& r, const at::Tensor* destination,
            const std::function<Value()>& old, const std::function<const hlo::Values&()>& starts) {
  const layout::Layout l = destination != nullptr ? layout_of(*destination) : layout::Layout{r.type.dims, r.strides, 0};
  r.length = destination != nullptr ? storage_length(*destination) : layout::end(l);
  if (layout::covers(l, r.length)) return layout::write(b, {}, r.length, l, value);
  if (destination == nullptr) return layout::write(b, b.zeros({r.type.elem, {r.length}}), r.length, l, value);
  const Value base = old();
  return layout::write(b, base, r.length, l, value, starts());
}

// Emits the call; returns the flat values of the defined results, in order.
hlo::Values emit(const Overload& overload, CallContext& call, Arguments arguments, std::vector<ResultFacts>& results) {
  std::vector<hlo::Type> types;
  for (const ResultFacts& r : results) types.push_back(r.type);
  call.set_results(types);
  if (overload.row->random) call.set_random_blocks(overload.row->random(types));
  const hlo::Values values = overload.row->emit(call);
  TORCH_CHECK(values.size() == results.size(), "[", overload.facts.overload, "] the emitter gave ", values.size(),
              " results, the schema has ", results.size());
  hlo::Values flats;
  std::unordered_map<const c10::StorageImpl*, Value>
      written;  // views of one storage in a list: one write after the other
  for (size_t i = 0; i < results.size(); ++i) {
    ResultFacts& r = results[i];
    r.defined = static_cast<bool>(values[i]);
    if (!r.defined) continue;
    Value v = ops::convert_like_aten(call.b, values[i], r.type.elem);
    v = v.type.numel() == r.type.numel() ? call.b.reshape(v, r.type.dims) : call.b.broadcast(v, r.type.dims);
    const at::Tensor* to = destination(r, arguments);
    const c10::StorageImpl* storage = to != nullptr ? to->storage().unsafeGetStorageImpl() : nullptr;
    const auto ordinal = [&] { return call.ordinal_of(r.slot.argument) + std::max(r.slot.element, 0); };
    const auto old = [&] {
      if (const auto before = written.find(storage); before != written.end()) {
        return layout::reinterpret(call.b, before->second, r.type.elem);
      }
      return call.flat(ordinal());
    };
    const auto starts = [&]() -> const hlo::Values& { return call.starts(ordinal()); };
    if (to != nullptr) v = with_lazy_bits(call.b, v, *to);
    flats.push_back(store(call.b, v, r, to, old, starts));
    if (storage != nullptr) written.insert_or_assign(storage, flats.back());
  }
  return flats;
}

// Takes the arguments off the stack and puts the returned tensors there.
void leave_results(const Overload& overload, c10::SmallVectorImpl<at::Tensor>& returned, torch::jit::Stack* stack) {
  stack->erase(stack->end() - static_cast<std::ptrdiff_t>(overload.facts.arguments.size()), stack->end());
  for (size_t i = 0; i < overload.facts.returns; ++i) stack->emplace_back(std::move(returned[i]));
}

const c10::IValue* generator_argument(const Overload& overload, Arguments arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (overload.facts.arguments[i].kind == ArgumentKind::Generator && arguments[i].isGenerator()) return &arguments[i];
  }
  return nullptr;
}

BufferRef random_state_buffer(const Program& program, const Overload& overload, Arguments arguments,
                              c10::DeviceIndex device) {
  const c10::IValue* given = generator_argument(overload, arguments);
  at::Generator generator = given != nullptr ? given->toGenerator() : default_generator(device);
  TORCH_CHECK(generator.device().is_privateuseone(), "Expected a '", c10::Device(c10::kPrivateUse1, device),
              "' generator device but found '", generator.device(), "'");
  const std::lock_guard lock(generator.mutex());
  const auto [seed, offset] = generator.get<Generator>()->reserve(program.random_blocks);
  const uint64_t words[2] = {seed, offset};
  const int64_t dims[] = {2};
  return runtime().client->from_host(words, pjrt::ElementType::U64, dims, device);
}

// The value, or that element of it.
c10::IValue element_of(const c10::IValue& value, int element) {
  return element < 0 ? value : c10::IValue(value.toListRef()[element].toInt());
}

BufferRef scalar_input(const Input& input, const c10::IValue& value, c10::DeviceIndex device) {
  switch (input.elem) {
    case hlo::Elem::Pred: {
      const bool v = value.toBool();
      return scalar_buffer(input.elem, &v, device);
    }
    case hlo::Elem::S64: {
      const int64_t v = value.toInt();
      return scalar_buffer(input.elem, &v, device);
    }
    case hlo::Elem::F64: {
      const double v = value.toDouble();
      return scalar_buffer(input.elem, &v, device);
    }
    default: {
      const c10::complex<double> v = value.toComplexDouble();
      return scalar_buffer(input.elem, &v, device);
    }
  }
}

}  // namespace

at::Tensor new_tensor(const hlo::Dims& sizes, const hlo::Dims& strides, c10::ScalarType dtype) {
  return at::Tensor(at::detail::empty_strided_generic(sizes, strides, allocator(),
                                                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype));
}

namespace {

std::unique_ptr<Program> compiled(const Overload& overload, CallContext& call, Arguments arguments,
                                  std::vector<ResultFacts> results) {
  auto program = std::make_unique<Program>();
  program->results = std::move(results);
  program->resizes = prepare_destinations(overload, program->results, arguments);
  hlo::Values flats = emit(overload, call, arguments, program->results);
  program->refusals = refusals_of(call.requirements());
  if (program->refusals) flats.push_back(ops::verdict(call.b, call.requirements()));
  program->outputs = flats.size();
  program->inputs.append(call.inputs().begin(), call.inputs().end());
  if (overload.row->random) {
    std::vector<hlo::Type> types;
    for (const ResultFacts& r : program->results) types.push_back(r.type);
    program->random_blocks = overload.row->random(types);
  }
  program->prompt = call.b.target().small_programs_inline && call.b.small_elementwise();
  program->contracts = call.b.contracts();
  program->executable = compile(call.b, flats, runtime().eager_options);
  return program;
}

}  // namespace

std::unique_ptr<Program> build_program(const Overload& overload, Arguments arguments, const TensorRefs& tensors,
                                       const Key& key, hlo::Passes passes) {
  hlo::Builder builder(runtime().eager_target);
  builder.set_passes(passes);
  CallContext call(builder, overload.facts, arguments, tensors, nullptr);
  return compiled(overload, call, arguments, result_facts(overload, arguments, call, key));
}

std::unique_ptr<Program> build_program(const Overload& overload, Arguments arguments, const TensorRefs& tensors,
                                       const torch::jit::Stack& results, hlo::Passes passes) {
  hlo::Builder builder(runtime().eager_target);
  builder.set_passes(passes);
  CallContext call(builder, overload.facts, arguments, tensors, nullptr);
  std::vector<ResultFacts> facts;
  for (const c10::IValue& v : results) {
    const at::Tensor& t = v.toTensor();
    ResultFacts r;
    r.type = type_of(t);
    r.strides = dims_of(t.strides());
    r.dtype = t.scalar_type();
    facts.push_back(std::move(r));
  }
  return compiled(overload, call, arguments, std::move(facts));
}

std::unique_ptr<Program> placed_elsewhere(const Program& sibling, const TensorRefs& tensors) {
  auto program = std::make_unique<Program>(sibling);
  for (Input& input : program->inputs) {
    if (input.kind != Input::Start) continue;
    const at::Tensor& t = *tensors[input.index];
    input.start = layout::placement(layout_of(t), storage_length(t)).starts.at(input.element);
  }
  return program;
}

void run_program(const Program& program, const Overload& overload, Arguments arguments, const TensorRefs& tensors,
                 torch::jit::Stack* stack) {
  const c10::DeviceIndex device = device_of_call(tensors, arguments);
  if (program.resizes) {
    for (const ResultFacts& r : program.results) {
      const at::Tensor* t = destination(r, arguments);
      if (t != nullptr) resize_output(*t, r.type.dims);
    }
  }
  c10::SmallVector<BufferRef, 2> temporary;  // keeps scalar inputs alive over the call
  c10::SmallVector<pjrt::Buffer*, 8> in;
  for (const Input& input : program.inputs) {
    switch (input.kind) {
      case Input::Tensor:
        in.push_back(buffer_of(*tensors[input.index]).get());
        continue;
      case Input::HostTensor:
        temporary.push_back(scalar_buffer(input.elem, tensors[input.index]->const_data_ptr(), device));
        break;
      case Input::Scalar:
        temporary.push_back(scalar_input(input, element_of(arguments[input.index], input.element), device));
        break;
      case Input::Start:
        temporary.push_back(scalar_buffer(input.elem, &input.start, device));  // little-endian: an S32 comes first
        break;
      case Input::RandomState:
        temporary.push_back(random_state_buffer(program, overload, arguments, device));
        break;
    }
    in.push_back(temporary.back().get());
  }
  c10::SmallVector<BufferRef, 4> out(program.outputs);
  execute(*program.executable, {in.data(), in.size()}, device, {out.data(), out.size()}, overload.facts.overload,
          program.prompt);
  if (program.refusals) note_verdict(std::move(out.back()), device, program.refusals);

  c10::SmallVector<at::Tensor, 4> returned;
  size_t next = 0;
  const int before = exchange_device(device);
  for (const ResultFacts& r : program.results) {
    at::Tensor t;
    if (r.defined) {
      const at::Tensor* to = destination(r, arguments);
      t = to != nullptr ? *to : new_tensor(r.type.dims, r.strides, r.dtype);
      assign(cell_of(t), std::move(out[next++]), r.type.elem, r.length);
    }
    if (r.slot.returned) returned.push_back(std::move(t));
  }
  set_current_device_unchecked(static_cast<c10::DeviceIndex>(before));
  leave_results(overload, returned, stack);
}

void record_call(const Overload& overload, Arguments arguments, const TensorRefs& tensors, const Key& key,
                 torch::jit::Stack* stack) {
  Recorder& recorder = *Recorder::current();
  recorder.builder().set_passes(current_passes());
  CallContext call(recorder.builder(), overload.facts, arguments, tensors, &recorder);
  std::vector<ResultFacts> results = result_facts(overload, arguments, call, key);
  prepare_destinations(overload, results, arguments);
  const hlo::Values flats = emit(overload, call, arguments, results);
  recorder.require(call.requirements());
  c10::SmallVector<at::Tensor, 4> returned;
  size_t next = 0;
  for (const ResultFacts& r : results) {
    at::Tensor t;
    if (r.defined) {
      const at::Tensor* to = destination(r, arguments);
      t = to != nullptr ? *to : new_tensor(r.type.dims, r.strides, r.dtype);
      recorder.set_value(t, flats[next++]);
    }
    if (r.slot.returned) returned.push_back(std::move(t));
  }
  leave_results(overload, returned, stack);
}

}  // namespace tpupilot::aten
