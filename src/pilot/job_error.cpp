#include "pilot/job_error.h"

#include <filesystem>

namespace tpupilot::pilot {

using nlohmann::json;

namespace {

std::string text(const json& object, const char* name) {
  return object.contains(name) && object[name].is_string() ? object[name].get<std::string>() : "";
}

std::string place(const json& frame) {
  return std::filesystem::path(text(frame, "file")).filename().string() + ":" + frame.value("line", json(0)).dump();
}

}  // namespace

std::string describe_error(const json& event) {
  std::string words = text(event, "type").empty() ? "an error" : text(event, "type");
  if (!text(event, "where").empty()) words += " in " + text(event, "where");
  if (event.contains("step") && event["step"].is_number()) words += " at step " + event["step"].dump();
  const json frames = event.value("frames", json::array());
  if (!frames.empty()) words += " (" + place(frames.back()) + ")";
  return words + ": " + text(event, "message");
}

std::string trimmed_traceback(const json& event) {
  std::string lines;
  for (const json& frame : event.value("frames", json::array())) {
    lines += "\n  " + place(frame) + " in " + text(frame, "function");
    if (!text(frame, "source").empty()) lines += "\n    " + text(frame, "source");
  }
  return describe_error(event) + lines;
}

}  // namespace tpupilot::pilot
