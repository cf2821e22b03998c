#include "pilot/repro.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "pilot/errors.h"

namespace tpupilot::pilot {

namespace fs = std::filesystem;

namespace {

constexpr const char* kScript = R"PY("""One module of a job, whose inputs agreed on both sides and whose output did not.

    python repro.py [DEVICE]

builds the job's model, loads the weights that the pilot recorded, runs this one module on the recorded input and compares
its output with the reference's. Exit code 0: equal within the tolerance, 1: it differs. Needs torch and the files beside it.
"""

import importlib.util
import json
import pathlib
import struct
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}


def read(path, prefix):
    """{name after the prefix: tensor} of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    found = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__" or not name.startswith(prefix):
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(data[begin:end]) or bytearray(8), dtype=DTYPES[entry["dtype"]])
        count = 1
        for size in entry["shape"]:
            count *= size
        found[name[len(prefix) :]] = flat[:count].reshape(entry["shape"])
    return found


def load_module():
    spec = importlib.util.spec_from_file_location("job", HERE / "job.py")
    job = importlib.util.module_from_spec(spec)
    sys.path.insert(0, JOB_FOLDER)
    spec.loader.exec_module(job)
    torch.manual_seed(0)
    part, path = ("model", MODULE) if hasattr(job, "model") else (MODULE + ".").split(".", 1)
    model = job.model() if hasattr(job, "model") else job.state()[part]
    weights = read(HERE / "weights.safetensors", part + "/")
    model.load_state_dict({name: weights[name] for name in model.state_dict() if name in weights}, strict=False)
    model.train(hasattr(job, "optimizer") or hasattr(job, "step"))  # an inference job has neither
    return model.get_submodule(path.rstrip("."))


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else DEVICE
    module = load_module().to(device)
    inputs = read(HERE / "reference.safetensors", PREFIX + "/in/")
    positional = [inputs[name].to(device) for name in sorted((n for n in inputs if n.isdigit()), key=int)]
    named = {name: value.to(device) for name, value in inputs.items() if "/" not in name and not name.isdigit()}
    output = module(*positional, **named)
    output = list(output) if isinstance(output, (tuple, list)) else [output]
    expected = read(HERE / "reference.safetensors", PREFIX + "/out/")
    recorded = read(HERE / "candidate.safetensors", PREFIX + "/out/")
    differs = False
    for value, name in zip(output, sorted(expected)):
        here, there = value.detach().cpu().double(), expected[name].double()
        bad = not torch.allclose(here, there, rtol=RTOL, atol=ATOL, equal_nan=True)
        differs = differs or bad
        print(f"{MODULE or 'model'} on {device}, output {name}: max |difference| {(here - there).abs().max().item():.3g}"
              f" {'DIFFERS' if bad else 'agrees'}; recorded by the candidate:"
              f" {(recorded[name].double() - there).abs().max().item():.3g}")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
)PY";

// The constants go below the imports, as Python literals.
std::string script_of(const Repro& repro) {
  const auto text = [](const std::string& value) { return nlohmann::json(value).dump(); };
  const std::string constants =
      "\nMODULE = " + text(repro.module) + "\nPREFIX = " + text(repro.prefix) + "\nDEVICE = " + text(repro.device) +
      "\nJOB_FOLDER = " + text(repro.job_file.parent_path().string()) +
      "\nRTOL, ATOL = " + nlohmann::json(repro.rtol).dump() + ", " + nlohmann::json(repro.atol).dump() + "\n";
  std::string script = kScript;
  const std::string after = "HERE = pathlib.Path(__file__).resolve().parent\n";
  return script.insert(script.find(after) + after.size(), constants.substr(1));
}

}  // namespace

void write_repro(const Repro& repro, const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  const std::pair<fs::path, const char*> copies[] = {{repro.job_file, "job.py"},
                                                     {repro.weights, "weights.safetensors"},
                                                     {repro.reference, "reference.safetensors"},
                                                     {repro.candidate, "candidate.safetensors"}};
  for (const auto& [from, to] : copies) {
    if (!failed) fs::copy_file(from, folder / to, fs::copy_options::overwrite_existing, failed);
    if (failed)
      throw Error("[isolate] cannot copy " + from.string() + " to " + (folder / to).string() + ": " + failed.message(),
                  Exit::Internal);
  }
  std::ofstream out(folder / "repro.py");
  out << script_of(repro);
  out.close();
  if (!out) throw Error("[isolate] cannot write " + (folder / "repro.py").string(), Exit::Internal);
}

}  // namespace tpupilot::pilot
