// Arguments and exit codes; the commands are in commands.h.
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "cli/commands.h"
#include "cli/worker_source.h"

namespace {

using tpupilot::pilot::Exit;
using tpupilot::pilot::RunOptions;

constexpr const char* kFirstScreen = R"(tpupilot: is this PyTorch training job ready to move to TPU?

It runs your job in its old environment (the reference) and on the new device (the candidate), compares what
they did number for number, and writes an acceptance sheet with a verdict. It stops at the first gate that fails.

  tpupilot run JOB        the main command. JOB is a folder with a job.py (and a pilot.toml, if you want one):
                          plain functions model(), batch(step), loss(model, batch), optimizer(model)
  tpupilot record JOB     record the old environment alone; `run --set reference.evidence=FOLDER` judges it elsewhere
  tpupilot doctor         do the interpreter, torch and the device work?

Try it:  tpupilot run examples/digits
Without the new device at hand, rehearse the pilot itself:  tpupilot run JOB --set candidate.device=cpu

Exit codes of run: 0 every asked gate passed, 1 stop, 2 not judged, 3 usage or environment, 4 internal fault.
All commands: tpupilot --help
)";

struct Arguments {
  RunOptions run;
  int gate = -1;
  bool json = false, markdown = false;
  std::string folder, name, export_to, target;
};

void add_job_options(CLI::App* command, Arguments& arguments) {
  command->add_option("--set", arguments.run.assignments, "section.key=value, over the pilot file")
      ->allow_extra_args(false);
  command->add_flag("--json", arguments.json, "one JSON document on stdout");
}

CLI::App* add_run(CLI::App& app, Arguments& arguments) {
  CLI::App* command = app.add_subcommand("run", "take a job through the gates and write the acceptance sheet");
  command->add_option("job", arguments.run.job, "a folder with pilot.toml or job.py, or a job file")->required();
  command->add_option("--gate", arguments.gate, "judge gates 0..N (default: what pilot.toml asks for)")
      ->check(CLI::Range(0, 3));
  command->add_option("--parent", arguments.run.parent, "the run folder that this is a rerun of");
  command->add_option("--out", arguments.run.out, "the run folder (default: runs/<job>/<time>-<hash>)");
  command->add_option("--inject", arguments.run.inject,
                      "try the pilot: give the candidate this fault, which must be caught");
  command->add_flag("--fresh", arguments.run.fresh, "do not go on with an unfinished run");
  command->add_flag("--dry-run", arguments.run.dry_run, "say what would run; start nothing");
  add_job_options(command, arguments);
  return command;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Is this PyTorch training job ready to move to TPU?", "tpupilot");
  app.set_version_flag("--version", "tpupilot " TPUPILOT_VERSION);
  Arguments arguments;

  CLI::App* run = add_run(app, arguments);
  CLI::App* record = app.add_subcommand("record", "record the reference alone, to be judged later or elsewhere");
  record->add_option("job", arguments.run.job, "a folder with pilot.toml or job.py, or a job file")->required();
  record->add_option("--out", arguments.run.out, "the folder (default: runs/<job>/<time>-<hash>)");
  add_job_options(record, arguments);
  CLI::App* doctor = app.add_subcommand("doctor", "report on both interpreters and the device");
  doctor->add_option("job", arguments.run.job, "take interpreters and device from this job's pilot.toml");
  add_job_options(doctor, arguments);
  CLI::App* report = app.add_subcommand("report", "print the sheet of a run and write its report.html");
  report->add_option("run", arguments.folder, "a run folder")->required();
  CLI::App* checks = app.add_subcommand("checks", "list every check");
  CLI::App* keys = app.add_subcommand("keys", "list every key of pilot.toml with its default");
  CLI::App* ops = app.add_subcommand("ops", "list the ATen overloads that the backend has");
  ops->add_option("name", arguments.name, "an overload or an op, for example add or add.out");
  ops->add_option("--target", arguments.target,
                  "compare with a release of the TPU backend, for example torch_tpu==0.2.0");
  for (CLI::App* command : {checks, keys, ops}) {
    command->add_flag("--markdown", arguments.markdown, "a table for docs/");
    command->add_flag("--json", arguments.json, "one JSON document on stdout");
  }
  CLI::App* worker = app.add_subcommand("worker", "the one-file recorder for another machine (Python and torch only)");
  worker->add_option("job", arguments.run.job, "put the plan of this job's recording into it");
  worker->add_option("--export", arguments.export_to, "write it to this file")->required();
  add_job_options(worker, arguments);

  if (argc == 1) {
    std::fputs(kFirstScreen, stdout);
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(Exit::Usage);
  }

  arguments.run.command = tpupilot::cli::shell_command(argc, argv);
  arguments.run.tool_version = TPUPILOT_VERSION;
  arguments.run.worker_source = tpupilot::cli::worker_source();
  arguments.run.interrupted = &tpupilot::cli::interrupted();
  if (arguments.gate >= 0) arguments.run.gate = arguments.gate;
  if (*run) return tpupilot::cli::run_command(arguments.run, arguments.json);
  if (*record) return tpupilot::cli::record_command(arguments.run, arguments.json);
  if (*doctor) return tpupilot::cli::doctor_command(arguments.run, arguments.json);
  if (*report) return tpupilot::cli::report_command(arguments.folder);
  if (*checks) return tpupilot::cli::checks_command(arguments.markdown, arguments.json);
  if (*keys) return tpupilot::cli::keys_command(arguments.markdown, arguments.json);
  if (*ops && !arguments.target.empty()) {
    return tpupilot::cli::target_command(arguments.target, arguments.name, arguments.markdown, arguments.json);
  }
  if (*ops) return tpupilot::cli::ops_command(arguments.name, arguments.markdown, arguments.json);
  if (*worker) return tpupilot::cli::worker_command(arguments.export_to, arguments.run);
  std::fputs(kFirstScreen, stdout);
  return 0;
}

// A bug of ours: the text goes to a file that the user can send.
int internal_fault(const std::string& what, const std::string& command) {
  const std::filesystem::path log = std::filesystem::temp_directory_path() / "tpupilot-fault.log";
  std::ofstream out(log, std::ios::app);
  out << "tpupilot " TPUPILOT_VERSION "\ncommand: " << command << "\n" << what << "\n\n";
  std::cerr << "tpupilot: internal fault (a bug in tpupilot): " << what << "\n"
            << (out.flush() ? "The log is in " : "The log cannot be written to ") << log.string() << ".\n";
  return static_cast<int>(Exit::Internal);
}

bool is_pipe(int descriptor) {
  struct stat info{};
  return fstat(descriptor, &info) == 0 && S_ISFIFO(info.st_mode);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = tpupilot::cli::shell_command(argc, argv);
  tpupilot::cli::watch_signals();
  try {
    const int code = parse_and_run(argc, argv);
    if (std::cout.flush() || is_pipe(STDOUT_FILENO)) return code;  // a reader may leave early
    throw tpupilot::pilot::Error("[stdout] the result cannot be written: the file or device behind it is full.");
  } catch (const tpupilot::pilot::Error& error) {
    if (error.code() == Exit::Internal) return internal_fault(error.what(), command);
    std::cerr << "tpupilot: " << error.what() << "\n";
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    return internal_fault(error.what(), command);
  }
}
