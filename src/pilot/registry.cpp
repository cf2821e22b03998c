#include <sstream>

#include "pilot/check.h"
#include "pilot/errors.h"
#include "pilot/families.h"
#include "pilot/settings.h"

namespace tpupilot::pilot {

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::Pass:
      return "pass";
    case Verdict::Stop:
      return "stop";
    case Verdict::NotJudged:
      return "not-judged";
    case Verdict::NotApplicable:
      return "not-applicable";
  }
  return "";
}

const std::vector<Check>& registry() {
  using enum Gate;
  constexpr bool must = true, informs = false;
  static const std::vector<Check> table = {
      // ---- gate 0: the environment ----
      {"env.isolated", Environment, must, "The candidate environment is its own", "both/environment",
       "interpreter and prefix differ from the reference's; one interpreter for both is a rehearsal",
       environment::isolated},
      {"env.python", Environment, must, "Python and torch are what the target release asks for",
       "candidate/environment", "inside the version ranges of candidate.profile", environment::python},
      {"env.pinned", Environment, must, "Every package is pinned, and a lock is written", "both/environment",
       "each package has an exact version and the hash of its RECORD file", environment::pinned},
      {"env.build-match", Environment, must, "Compiled libraries fit the torch that is installed",
       "candidate/environment", "the backend and every compiled library of the job import", environment::build_match},
      {"env.backend-proof", Environment, must, "The device exists and runs an op", "candidate/environment",
       "device listed, an op ran there, the maker of the backend is known", environment::backend_proof},
      {"env.smoke", Environment, must, "Create, matmul, copy back", "candidate/environment",
       "shape as asked; |difference from the CPU| <= tolerance of float32", environment::smoke},
      {"env.settings", Environment, must, "Settings that latch at start-up", "both/environment",
       "all recorded, fallback off", environment::settings},
      {"env.exclusive", Environment, informs, "Nobody else holds the device", "candidate/environment",
       "no other holder", environment::exclusive},
      {"env.reference-diff", Environment, must, "Reference and candidate side by side", "both/environment",
       "every difference is listed", environment::reference_diff},
      // ---- beside the gates: the inventory ----
      {"inv.custom-cpp", Inventory, must, "C++ and CUDA extensions", "scan", "none open"},
      {"inv.triton", Inventory, must, "Triton kernels and explicit inductor use", "scan", "none open"},
      {"inv.streams", Inventory, must, "CUDA streams, events, graphs", "scan", "none open"},
      {"inv.memory-calls", Inventory, must, "torch.cuda memory calls and hard-coded devices", "scan", "none open"},
      {"inv.dynamic-shapes", Inventory, must, "Shapes that vary", "scan", "none open"},
      {"inv.checkpoint", Inventory, must, "Save and load sites", "scan", "none open"},
      {"inv.optimizer", Inventory, must, "Optimizer flags and where its state lives", "scan", "none open"},
      {"inv.rank-zero", Inventory, must, "Collectives under a rank test", "scan", "none open"},
      {"inv.xla-idioms", Inventory, must, "PyTorch/XLA calls", "scan", "none open"},
      {"inv.op-path", Inventory, must, "Every ATen overload of a real step, here and on the target",
       "candidate/placement", "none absent or known wrong in candidate.profile, none missing or falling back here",
       inventory::op_path},
      {"inv.host-syncs", Inventory, must, "Host reads inside the step", "trace", "none open"},
      {"inv.amp", Inventory, must, "GradScaler, autocast, own casts", "scan", "none open"},
      {"inv.process-group", Inventory, must, "nccl, device_ids, set_device(rank)", "scan", "none open"},
      {"inv.host-rng", Inventory, must, "Host randomness that shapes the step", "scan", "none open"},
      {"inv.default-device", Inventory, must, "Tensors made in the step without a device", "scan", "none open"},
      {"inv.hardware-fit", Inventory, informs, "Dims that the matrix unit pads", "scan", "reported"},
      {"inv.libraries", Inventory, must, "Third-party libraries in the loop", "scan", "each known"},
      {"inv.tracker", Inventory, must, "The public issue of each missing item", "scan", "one visit an item"},
      // ---- gate 1: one worker, eager ----
      {"par.inputs-equal", OneWorker, must, "Weights, batches and draws are the same on both sides", "both/base",
       "exact", parity::inputs_equal},
      {"par.noise-floor", OneWorker, must, "The reference agrees with itself", "reference/base, reference/repeat",
       "exact", parity::noise_floor},
      {"par.forward", OneWorker, must, "Forward outputs", "both/base, reference/float64",
       "tolerance of the dtype, then the f64 judge", parity::forward},
      {"par.loss", OneWorker, must, "Loss", "both/base, reference/float64",
       "tolerance of the dtype, then the f64 judge", parity::loss},
      {"par.gradients", OneWorker, must, "Every gradient", "both/base, reference/float64",
       "tolerance of the dtype, then the f64 judge", parity::gradients},
      {"par.next-step", OneWorker, must, "Parameters and optimizer state after one step",
       "both/base, reference/float64", "tolerance of the dtype, then the f64 judge", parity::next_step},
      {"par.drift", OneWorker, must, "Loss and gradient norm over N steps", "both/base",
       "mean relative loss error <= parity.max_drift", parity::drift},
      {"par.updates", OneWorker, must, "Updates done equal updates asked", "both/base", "exact", parity::updates},
      {"par.nonfinite", OneWorker, must, "NaN and Inf at the same places", "both/base", "exact", parity::nonfinite},
      {"par.dtype", OneWorker, must, "Dtypes and shapes are the job's own", "both/base", "exact", parity::dtype},
      {"par.placement", OneWorker, must, "The candidate ran on its device", "candidate/placement",
       "ops there > 0, fallbacks = 0, no CPU op on device data", parity::placement},
      {"par.self-test", OneWorker, must, "The judge catches faults in this job", "both/base, candidate/fault",
       "known-good passes, every injected fault stops", parity::self_test},
      {"par.tpu-precision", OneWorker, must, "The step at a TPU's own default precision",
       "candidate/tpu-precision-1, -3, -6, reference/float64",
       "reported; with parity.max_tpu_error, the error of the setting that the job would run at",
       parity::tpu_precision},
      {"par.converge", OneWorker, informs, "Equivalent convergence", ">= 3 seeds a side", "as set"},
      {"par.first-divergence", OneWorker, must, "Where a stop begins", "both/trace",
       "on a stop: the first module whose inputs agree and whose output does not", parity::first_divergence},
      {"op.common", OneWorker, must, "Custom operators: the job's inputs, forward and backward", "both/custom-ops",
       "tolerance of the dtype, then the f64 judge; torch.library.opcheck no worse than on the reference",
       operators::common},
      {"op.boundary", OneWorker, must, "Custom operators: boundary inputs, forward and backward", "both/custom-ops",
       "as op.common; an error must be of one type on both sides", operators::boundary},
      {"ckpt.round-trip", OneWorker, must, "Save and load, bit for bit", "candidate/until, candidate/round-trip",
       "exact", checkpoint::round_trip},
      {"ckpt.resume", OneWorker, must, "A resumed run goes on as the straight one",
       "candidate/straight, candidate/until, candidate/resumed-mid, candidate/resumed-border", "exact",
       checkpoint::resume},
      {"ckpt.portable", OneWorker, must, "Checkpoints cross between the environments",
       "reference/base, candidate/portable, reference/portable-back, reference/torch-file", "exact",
       checkpoint::portable},
      {"ckpt.crash", OneWorker, must, "A kill in the middle of a save loses nothing",
       "candidate/crash-save, candidate/after-crash", "the former checkpoint is whole and the run goes on from it",
       checkpoint::crash},
      {"ckpt.known-good", OneWorker, must, "A known-good checkpoint is kept with the evidence", "reference/base",
       "hashes hold", checkpoint::known_good},
      // ---- gate 2: the real distributed mode ----
      {"dist.start", Distributed, must, "Every rank starts", "ranks", "all, within the time-out"},
      {"dist.replicas", Distributed, must, "Weights equal on all ranks", "ranks", "exact"},
      {"dist.gradients", Distributed, must, "Gradients agree across ranks and with one worker", "ranks",
       "as par.gradients"},
      {"dist.resume", Distributed, must, "Save on all ranks, resume", "ranks", "exact / tolerance"},
      {"dist.rank-divergence", Distributed, must, "Ranks that issue different collectives are named", "ranks",
       "named before the time-out"},
      {"dist.recovery", Distributed, must, "One rank is killed: restart without loss", "ranks", "exact"},
      {"dist.preempt", Distributed, informs, "SIGTERM with a grace period", "ranks", "exact"},
      // ---- gate 3: compiled, steady state ----
      {"cmp.order", Compiled, must, "Gates 1 and 2 passed first", "the sheet", "exact"},
      {"cmp.compiled", Compiled, must, "Compilation really happened", "compiled run", "graphs > 0, no eager frame"},
      {"cmp.parity", Compiled, must, "Compiled against eager", "compiled run", "as par.*"},
      {"cmp.compile-time", Compiled, must, "Compile seconds, cold and warm", "compiled run", "ceiling if set"},
      {"cmp.signatures", Compiled, must, "Signatures and compiles", "compiled run",
       "compiles per (graph, signature) <= 1"},
      {"cmp.recompiles", Compiled, must, "Compiles inside the window", "compiled run", "0 of a signature seen before"},
      {"cmp.graph-breaks", Compiled, must, "Graph breaks", "compiled run", "reported; ceiling if set"},
      {"cmp.throughput", Compiled, must, "Sustained throughput", "compiled run", "lower bound >= target"},
      {"cmp.goodput", Compiled, must, "Productive time over wall time", "compiled run", "reported; a rule if set"},
      {"cmp.memory", Compiled, must, "Peak device memory", "compiled run", "<= limit"},
      {"cmp.host-overhead", Compiled, must, "Data wait, dispatch gap, transfers", "compiled run", "reported"},
      {"cmp.failures", Compiled, must, "Failures and restarts in the window", "compiled run", "0 or bound <= target"},
      {"cmp.window", Compiled, must, "The window is representative", "compiled run", ">= 99 % of the signatures' mass"},
      {"cmp.cost", Compiled, must, "Price times time, both sides", "compiled run", "<= budget"},
      // ---- decision ----
      {"dec.sheet", Decision, must, "The sheet holds every required field", "the sheet", "none missing",
       decision::sheet},
      {"dec.targets", Decision, must, "Throughput, memory and cost targets are set", "the pilot file", "all set",
       decision::targets},
      {"dec.stop", Decision, must, "A stopped parent is not scaled up", "the parent's sheet",
       "no more chips, ranks or topology after a stop", decision::stop},
      {"dec.one-variable", Decision, must, "One variable changed since the parent", "the parent's manifest",
       "at most one comparable key differs", decision::one_variable},
      {"dec.keep-old", Decision, must, "The old environment still works", "a second reference run",
       "recorded values again"},
      {"dec.regression", Decision, must, "Diff against the accepted sheet", "an accepted sheet", "no field worse"},
      {"dec.published", Decision, must, "Published figures relax no rule", "the sheet", "-"},
      {"dec.expiry", Decision, must, "The sheet's release, topology and revision still hold", "an accepted sheet",
       "none moved on"},
  };
  return table;
}

const Check& find_check(std::string_view id) {
  std::vector<std::string_view> ids;
  for (const Check& check : registry()) {
    if (check.id == id) return check;
    ids.push_back(check.id);
  }
  const std::string near = nearest(id, ids);
  throw Error("[checks] no check `" + std::string(id) + "`" + (near.empty() ? "." : "; did you mean `" + near + "`?"));
}

namespace {

std::string gate_name(Gate gate) {
  switch (gate) {
    case Gate::Inventory:
      return "inventory";
    case Gate::Decision:
      return "decision";
    default:
      return "gate " + std::to_string(static_cast<int>(gate));
  }
}

}  // namespace

std::string checks_markdown() {
  std::ostringstream out;
  out << "# The checks\n\nMade by `tpupilot checks --markdown`. A gate passes if none of its *must* checks is `stop` "
         "or `not-judged`. What this "
         "release does not have is listed under `not_tested` of every sheet.\n\n"
         "| check | gate | must | what | needs | rule | in this release |\n|---|---|---|---|---|---|---|\n";
  for (const Check& check : registry()) {
    out << "| `" << check.id << "` | " << gate_name(check.gate) << " | " << (check.must ? "must" : "") << " | "
        << check.title << " | " << check.needs << " | " << check.rule << " | " << (check.judge ? "yes" : "no")
        << " |\n";
  }
  return out.str();
}

nlohmann::json checks_json() {
  nlohmann::json rows = nlohmann::json::array();
  for (const Check& check : registry()) {
    rows.push_back({{"id", check.id},
                    {"gate", gate_name(check.gate)},
                    {"must", check.must},
                    {"title", check.title},
                    {"needs", check.needs},
                    {"rule", check.rule},
                    {"implemented", check.judge != nullptr}});
  }
  return rows;
}

}  // namespace tpupilot::pilot
