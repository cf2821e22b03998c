#include "pilot/context.h"

#include "evidence/digest.h"
#include "pilot/job_error.h"
#include "pilot/run_state.h"

namespace tpupilot::pilot {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// The attempt of a task that counts: the last that ended; 0 if none did.
int64_t ended_attempt(const std::vector<json>& events, const std::string& task) {
  int64_t attempt = 0;
  for (const json& event : events) {
    if (event.value("event", "") == "task.end" && event.value("task", "") == task)
      attempt = event.value("attempt", int64_t{1});
  }
  return attempt;
}

int64_t last_attempt(const std::vector<json>& events, const std::string& task) {
  int64_t attempt = 0;
  for (const json& event : events) {
    if (event.value("event", "") == "task.start" && event.value("task", "") == task)
      attempt = event.value("attempt", int64_t{1});
  }
  return attempt;
}

std::vector<json> of_attempt(const std::vector<json>& events, const std::string& task, int64_t attempt) {
  std::vector<json> found;
  for (const json& event : events) {
    if (event.value("task", "") == task && event.value("attempt", int64_t{1}) == attempt) found.push_back(event);
  }
  return found;
}

}  // namespace

const fs::path& Context::folder() const { return run_.folder(); }
const json& Context::manifest() const { return run_.manifest(); }
const std::map<std::string, CheckResult>& Context::results() const { return run_.results; }
std::string Context::injected() const { return manifest().value("inject", ""); }

bool Context::self_rehearsal() const {
  const std::string candidate = settings_.text("candidate", "device"),
                    reference = settings_.text("reference", "device");
  return candidate.substr(0, candidate.find(':')) == reference.substr(0, reference.find(':'));
}

bool Context::ended(const std::string& side, const std::string& task) const {
  return ended_attempt(run_.events(side), task) > 0;
}

std::vector<json> Context::all(const std::string& side, const std::string& task, const std::string& kind) const {
  const auto& events = run_.events(side);
  const int64_t attempt = ended_attempt(events, task);
  if (attempt == 0) {
    const auto failure = error(side, task);
    throw NotJudgedError(side + "/" + task + " did not end" +
                         (failure ? ": it raised " + describe_error(*failure) : "; run the same command again"));
  }
  verified(side + "/events.jsonl");
  std::vector<json> found;
  for (json& event : of_attempt(events, task, attempt)) {
    if (event.value("event", "") == kind) found.push_back(std::move(event));
  }
  return found;
}

std::optional<json> Context::find(const std::string& side, const std::string& task, const std::string& kind) const {
  if (!ended(side, task)) return std::nullopt;
  auto found = all(side, task, kind);
  return found.empty() ? std::nullopt : std::optional<json>(found.back());
}

json Context::need(const std::string& side, const std::string& task, const std::string& kind) const {
  auto found = all(side, task, kind);
  if (found.empty()) throw NotJudgedError(side + "/" + task + " left no `" + kind + "` event");
  return found.back();
}

std::optional<json> Context::error(const std::string& side, const std::string& task) const {
  const auto& events = run_.events(side);
  for (const json& event : of_attempt(events, task, last_attempt(events, task))) {
    if (event.value("event", "") == "error") return event;
  }
  return std::nullopt;
}

std::vector<json> Context::killed(const std::string& side, const std::string& task) const {
  const auto& events = run_.events(side);
  const int64_t attempt = last_attempt(events, task);
  if (attempt == 0) throw NotJudgedError(side + "/" + task + " did not start");
  verified(side + "/events.jsonl");
  return of_attempt(events, task, attempt);
}

json Context::checkpoint(const std::string& side, const std::string& task, const std::string& name) const {
  for (const json& event : all(side, task, "checkpoint")) {
    if (fs::path(event.at("path").get<std::string>()).filename() == name) return event;
  }
  throw NotJudgedError(side + "/" + task + " left no checkpoint `" + name + "`");
}

std::string Context::tensors(const std::string& side, const std::string& task, const std::string& what,
                             int64_t step) const {
  for (const json& event : all(side, task, "tensors")) {
    if (event.at("what") == what && event.at("step") == step) return side + "/" + event.at("file").get<std::string>();
  }
  throw NotJudgedError(side + "/" + task + " recorded no " + what + " at step " + std::to_string(step));
}

fs::path Context::verified(const std::string& relative) const {
  if (const std::string wrong = run_.damage(relative); !wrong.empty()) throw NotJudgedError(wrong);
  return run_.folder() / relative;
}

std::string Context::lock_hash(const std::string& side) const {
  return evidence::sha256_of(need(side, "environment", "environment").at("packages"));
}

const json& Context::parent_manifest() const {
  static const json none;
  return manifest().contains("parent_manifest") ? manifest()["parent_manifest"] : none;
}

}  // namespace tpupilot::pilot
