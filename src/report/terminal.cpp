#include "report/terminal.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

namespace tpupilot::report {
namespace {

using nlohmann::json;

constexpr size_t kWidth = 110;  // of a line; the sentences wrap inside it

std::string painted(const std::string& text, const std::string& verdict, bool color) {
  static const std::map<std::string, const char*> codes = {
      {"pass", "32"}, {"stop", "1;31"}, {"not-judged", "33"}, {"not-applicable", "2"}};
  const auto code = codes.find(verdict);
  if (!color || code == codes.end()) return text;
  return "\x1b[" + std::string(code->second) + "m" + text + "\x1b[0m";
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

// `text` broken at spaces; lines after the first begin with `indent` spaces.
std::string wrapped(const std::string& text, size_t indent) {
  std::istringstream words(text);
  std::string result, word;
  size_t column = indent;
  while (words >> word) {
    if (column > indent && column + 1 + word.size() > kWidth) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
    }
    if (column > indent) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
  }
  return result;
}

std::string numbers(const json& list) {
  std::string text;
  for (const json& x : list) text += (text.empty() ? "" : ", ") + x.dump();
  return text.empty() ? "none" : text;
}

void write_checks(std::ostream& out, const json& checks, bool color) {
  size_t id_width = 0;
  for (const json& check : checks) id_width = std::max(id_width, check.at("id").get_ref<const std::string&>().size());
  const size_t indent = 2 + id_width + 2 + 14 + 2;
  for (const json& check : checks) {
    const std::string verdict = check.at("verdict");
    out << "  " << padded(check.at("id"), id_width) << "  " << painted(padded(verdict, 14), verdict, color) << "  "
        << wrapped(check.value("why", ""), indent) << "\n";
  }
}

// "par 3, cmp 14": untested checks by family.
std::string by_family(const json& not_tested) {
  std::vector<std::pair<std::string, size_t>> families;
  for (const json& item : not_tested) {
    const std::string id = item.at("id");
    const std::string family = id.substr(0, id.find('.'));
    if (families.empty() || families.back().first != family) families.emplace_back(family, 0);
    ++families.back().second;
  }
  std::string text;
  for (const auto& [family, count] : families)
    text += (text.empty() ? "" : ", ") + family + " " + std::to_string(count);
  return text;
}

}  // namespace

std::string terminal_text(const json& sheet, bool color) {
  std::ostringstream out;
  const std::string verdict = sheet.at("verdict");
  std::string headline = verdict == "pass" ? "PASS" : verdict == "stop" ? "STOP" : "NOT JUDGED";
  if (sheet.value("rehearsal", false)) headline = "REHEARSAL " + headline;
  write_checks(out, sheet.at("checks"), color);
  out << "\n"
      << painted(headline, verdict, color) << "  " << wrapped(sheet.value("summary", ""), headline.size() + 2) << "\n"
      << "gates asked for: " << numbers(sheet.at("asked_gates")) << "; passed: " << numbers(sheet.at("passed_gates"))
      << "; ready for a TPU: " << (sheet.value("ready", false) ? "yes" : "no") << "\n";
  const json& not_tested = sheet.at("not_tested");
  if (!not_tested.empty()) {
    out << not_tested.size() << " checks were not tested (" << by_family(not_tested)
        << "); sheet.json says why for each\n";
  }
  for (const json& step : sheet.value("next", json::array())) out << "next: " << wrapped(step, 6) << "\n";
  return out.str();
}

}  // namespace tpupilot::report
