// isolate/: the first module that differs, with its tensors and a script that runs alone.
#pragma once

#include <filesystem>
#include <string>

namespace tpupilot::pilot {

struct Repro {
  std::filesystem::path job_file;
  std::filesystem::path weights;               // safetensors: model/<name>
  std::filesystem::path reference, candidate;  // safetensors of every module: <order>/<module>/in|out/<path>
  std::string prefix;                          // <order>/<module> in `reference`
  std::string module;                          // "" = the root
  std::string device;
  double rtol, atol;
};

// Copies the files and writes repro.py, which needs torch only. Error (Internal) if the folder cannot be written.
void write_repro(const Repro& repro, const std::filesystem::path& folder);

}  // namespace tpupilot::pilot
