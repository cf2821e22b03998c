// The sheet for a terminal or a log.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tpupilot::report {

// The verdict, each check that was judged with the sentence that says why, what was not tested (counted), and what to
// do next. `sheet` is a document of docs/sheet.schema.json. `color` adds ANSI colours.
std::string terminal_text(const nlohmann::json& sheet, bool color);

}  // namespace tpupilot::report
