// The commands of bin/tpupilot. Each prints its result on stdout, everything else on stderr, and returns the exit code.
#pragma once

#include <string>

#include "pilot/pilot.h"

namespace tpupilot::cli {

int run_command(pilot::RunOptions options, bool json);
int record_command(pilot::RunOptions options, bool json);
int doctor_command(pilot::RunOptions options, bool json);
int report_command(const std::string& run_folder);
int checks_command(bool markdown, bool json);
int keys_command(bool markdown, bool json);
int ops_command(const std::string& name, bool markdown, bool json);
// The same beside a target profile, "torch_tpu==0.2.0"; what would fail there comes first.
int target_command(const std::string& target, const std::string& name, bool markdown, bool json);
// With a job, the file holds the plan of its recording too.
int worker_command(const std::string& export_to, const pilot::RunOptions& options);

// argv quoted so that a shell reads it back.
std::string shell_command(int argc, char** argv);

// Set by SIGINT and SIGTERM; handlers are installed by watch_signals().
const std::atomic<bool>& interrupted();
void watch_signals();

}  // namespace tpupilot::cli
