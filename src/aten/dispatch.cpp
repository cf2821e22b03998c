// One boxed kernel for every row of the op table, and its registration. A call makes its key; a known key runs its
// program; an unknown one is built. Nothing here knows any op by name.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <c10/util/flat_hash_map.h>
#include <torch/library.h>

#include <map>
#include <mutex>
#include <unordered_set>

#include "aten/counters.h"
#include "aten/errors.h"
#include "aten/precision.h"
#include "aten/preparation.h"
#include "aten/program.h"
#include "aten/recorder.h"
#include "ops/row.h"

namespace tpupilot::aten {
namespace {

constexpr auto kCoreDefault = c10::DispatchKey::CompositeExplicitAutogradNonFunctional;

class RowKernel final : public c10::OperatorKernel {
 public:
  // `derived`: a functional overload that core would serve by the row's .out overload. It gets programs of its own,
  // since core's way there (a TensorIterator and a second dispatch) costs as much as a small program.
  explicit RowKernel(const ops::Row* row, bool derived = false) : derived_(derived) { overload_.row = row; }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    if (!known_.load(std::memory_order_acquire)) learn(op);  // call_once costs 20 ns on every call
    try {
      if (overload_.row->checks_errors_as.empty()) return call(stack);
      call_and_check(stack);
    } catch (const c10::Error&) {
      throw;                                     // already says it in torch's words
    } catch (const std::runtime_error& error) {  // of ours
      raise_for(overload_.facts.overload, error);
    } catch (const std::bad_alloc& error) {
      raise_for(overload_.facts.overload, error);
    } catch (const std::logic_error& error) {
      raise_for(overload_.facts.overload, error);
    }  // anything else is an exception of a Meta kernel, which is Python, and keeps its type
  }

 private:
  // Raises for LAPACK's info if the call asks for it. Reads it on the host.
  void call_and_check(torch::jit::Stack* stack) {
    const SchemaFacts& facts = overload_.facts;
    const auto first = stack->end() - static_cast<std::ptrdiff_t>(facts.arguments.size());
    const bool checks = first[facts.index_of("check_errors")].toBool(), is_matrix = first->toTensor().dim() == 2;
    call(stack);
    if (checks) at::_linalg_check_errors(stack->back().toTensor(), overload_.row->checks_errors_as, is_matrix);
  }

  void call(torch::jit::Stack* stack) {
    if (overload_.facts.preparation != Preparation::None) prepare(overload_.facts, stack);
    const size_t count = overload_.facts.arguments.size();
    const Arguments arguments(stack->data() + stack->size() - count, count);
    Key key;
    TensorRefs tensors;
    make_key(overload_.facts, arguments, key, tensors);
    if (Recorder::current() != nullptr) {
      if (derived_) return overload_.handle->callBoxedForDispatchKey(kCoreDefault, *stack);
      record_call(overload_, arguments, tensors, key, stack);
      return;
    }
    hlo::Passes passes = hlo::Passes::Exact;
    const bool contracts = contracts_.load(std::memory_order_relaxed);
    if (contracts) key.push_back(static_cast<uint64_t>(passes = current_passes()));
    if (const Program* program = find(key)) {
      counters().memory_hits.fetch_add(1, std::memory_order_relaxed);
      return run_program(*program, overload_, arguments, tensors, stack);
    }
    Key form = form_of(overload_.facts, arguments);
    if (const Program* sibling = find_form(form, contracts, passes)) {
      return run_elsewhere(*sibling, key, arguments, tensors, stack);
    }
    if (contracts) key.pop_back();  // Meta kernels know nothing of it
    make(key, form, arguments, tensors, stack);
  }

  // The first call of its form.
  void make(Key& key, Key& form, Arguments arguments, const TensorRefs& tensors, torch::jit::Stack* stack) {
    const hlo::Passes passes = current_passes();
    if (derived_) {
      torch::jit::Stack results;
      adopt(key, form, arguments, tensors, results, passes);
      stack->erase(stack->end() - static_cast<std::ptrdiff_t>(arguments.size()), stack->end());
      stack->insert(stack->end(), results.begin(), results.end());
      return;
    }
    // Meta kernels are Python: no lock is held while the program is built. Two threads may build one program twice.
    const Program* program = keep(key, form, build_program(overload_, arguments, tensors, key, passes), passes);
    run_program(*program, overload_, arguments, tensors, stack);
  }

  // A call whose views differ from `sibling`'s in where they start. Remembered, but for a loop over very many places.
  void run_elsewhere(const Program& sibling, const Key& key, Arguments arguments, const TensorRefs& tensors,
                     torch::jit::Stack* stack) {
    constexpr size_t kPlaces = 4096;
    counters().memory_hits.fetch_add(1, std::memory_order_relaxed);
    std::unique_ptr<Program> own = placed_elsewhere(sibling, tensors);
    const Program* program = own.get();
    {
      const std::lock_guard lock(mutex_);
      if (programs_.size() < kPlaces) program = programs_.emplace(key, std::move(own)).first->second.get();
    }
    run_program(*program, overload_, arguments, tensors, stack);
  }

  void learn(const c10::OperatorHandle& op) {
    const std::lock_guard lock(mutex_);
    if (known_.load(std::memory_order_relaxed)) return;
    overload_.handle = &op;
    overload_.facts = facts_of(op.schema(), *overload_.row);
    register_overload(overload_.facts.overload, &signatures_);
    known_.store(true, std::memory_order_release);
  }

  const Program* find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto it = programs_.find(key);
    return it == programs_.end() ? nullptr : it->second.get();
  }
  const Program* find_form(Key form, bool contracts, hlo::Passes passes) {
    if (contracts) form.push_back(static_cast<uint64_t>(passes));
    const std::lock_guard lock(mutex_);
    const auto it = forms_.find(form);
    return it == forms_.end() ? nullptr : it->second;
  }
  // An overload of which one program contracts has the setting in its keys from then on.
  const Program* keep(Key& key, Key& form, std::unique_ptr<Program> program, hlo::Passes passes) {
    const std::lock_guard lock(mutex_);
    if (program->contracts) contracts_.store(true, std::memory_order_relaxed);
    if (contracts_.load(std::memory_order_relaxed)) {
      key.push_back(static_cast<uint64_t>(passes));
      form.push_back(static_cast<uint64_t>(passes));
    }
    ++signatures_;
    const Program* kept = programs_.emplace(std::as_const(key), std::move(program))
                              .first->second.get();  // programs stay for the life of the process
    // Where out= is resized, the call's own views are not the program's.
    if (!kept->resizes) forms_.emplace(std::as_const(form), kept);
    return kept;
  }

  // Programs of overloads that core derives are made from what core's own kernel returned: it checks the arguments, in
  // its own words, allocates, and calls our .out overload, whose program this one shares.
  const Program* adopt(Key& key, Key& form, Arguments arguments, const TensorRefs& tensors, torch::jit::Stack& results,
                       hlo::Passes passes) {
    results.assign(arguments.begin(), arguments.end());
    overload_.handle->callBoxedForDispatchKey(kCoreDefault, results);
    return keep(key, form, build_program(overload_, arguments, tensors, results, passes), passes);
  }

  Overload overload_;
  bool derived_;
  std::atomic<bool> known_{false};  // overload_ is filled in
  std::atomic<bool> contracts_{false};
  std::mutex mutex_;
  ska::flat_hash_map<Key, std::unique_ptr<Program>, KeyHash, KeyEqual> programs_;
  ska::flat_hash_map<Key, const Program*, KeyHash, KeyEqual> forms_;  // the first program of each form
  std::atomic<int64_t> signatures_{0};
};

// A type by the kinds in it: enough to tell the overloads of one op apart.
std::string kinds_of(const c10::Type& type) {
  std::string text = std::to_string(static_cast<int>(type.kind()));
  for (const c10::TypePtr& inner : type.containedTypes()) text += "(" + kinds_of(*inner) + ")";
  return text;
}

// "add.out" -> "add.Tensor": the functional overload that core derives from a structured one, found by its schema: the
// same arguments without the ones that are written.
std::map<std::string, std::string> functional_overloads() {
  std::unordered_set<std::string> bases;  // of the table: schemas are parsed lazily, and most are never needed
  for (const ops::Row& row : ops::rows()) {
    for (const std::string_view overload : row.overloads)
      bases.insert("aten::" + std::string(overload.substr(0, overload.find('.'))));
  }
  const auto name_of = [](const c10::FunctionSchema& s) {
    const std::string base = s.name().substr(s.name().find("::") + 2);
    return s.overload_name().empty() ? base : base + "." + s.overload_name();
  };
  const auto inputs_of = [](const c10::FunctionSchema& s) {
    std::string text = s.name();
    for (const c10::Argument& a : s.arguments()) {
      if (a.alias_info() == nullptr) text += "," + a.name() + ":" + kinds_of(*a.type());
    }
    return text;
  };
  std::map<std::string, std::string> by_inputs, result;
  std::vector<std::pair<std::string, std::string>> writers;  // name, inputs
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!bases.contains(name.name)) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op) continue;
    const c10::FunctionSchema& schema = op->schema();
    if (schema.is_mutable()) {
      writers.emplace_back(name_of(schema), inputs_of(schema));
    } else if (op->hasKernelForDispatchKey(kCoreDefault)) {
      by_inputs.emplace(inputs_of(schema), name_of(schema));
    }
  }
  for (const auto& [writer, inputs] : writers) {
    const auto twin = by_inputs.find(inputs);
    if (twin != by_inputs.end()) result.emplace(writer, twin->second);
  }
  return result;
}

}  // namespace

void register_rows() {
  // How device copies look to the dispatcher: an op of our own with a row like any other (copies.cpp calls it).
  static const ops::Row copy_row{.overloads = {"copy_"},
                                 .emit = [](ops::Context& c) { return ops::Values{c.tensor("src")}; },
                                 .shape = [](ops::Context& c) { return std::vector{c.tensor("self").type}; }};
  static torch::Library own(torch::Library::DEF, "tpupilot", std::nullopt, __FILE__, __LINE__);
  own.def("copy_(Tensor(a!) self, Tensor src) -> Tensor(a!)");
  static torch::Library own_kernels(torch::Library::IMPL, "tpupilot", c10::DispatchKey::PrivateUse1, __FILE__,
                                    __LINE__);
  own_kernels.impl("copy_", torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RowKernel>(&copy_row)));
  for (const ops::InternalOp& op : ops::internal_ops()) {
    const std::string schema(op.schema);
    own.def(schema.c_str());
    own_kernels.impl(schema.substr(0, schema.find('(')).c_str(),
                     torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RowKernel>(&op.row)));
  }

  static torch::Library kernels(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  std::map<std::string, std::string> functional = functional_overloads();
  for (const ops::Row& row : ops::rows()) {  // a row of its own comes first
    for (const std::string_view overload : row.overloads) {
      std::erase_if(functional, [&](const auto& twin) { return twin.second == overload; });
    }
  }
  for (const ops::Row& row : ops::rows()) {
    for (const std::string_view overload : row.overloads) {
      kernels.impl(std::string(overload).c_str(),
                   torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RowKernel>(&row)));
      if (const auto twin = functional.find(std::string(overload)); twin != functional.end()) {
        kernels.impl(twin->second.c_str(),
                     torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RowKernel>(&row, true)));
      }
    }
  }
}

}  // namespace tpupilot::aten
