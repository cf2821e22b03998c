#include "report/html.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "report/svg.h"

namespace tpupilot::report {
namespace {

using nlohmann::json;

constexpr const char* kStyle = R"(
:root { --text: #1b1f24; --soft: #59636e; --line: #d8dee4; --page: #fff; --card: #f6f8fa;
  --pass: #1a7f37; --stop: #cf222e; --not-judged: #9a6700; --not-applicable: #59636e;
  --reference: #0969da; --candidate: #d4631c; --float64: #6e7781; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --soft: #9198a1; --line: #30363d; --page: #0d1117; --card: #161b22;
  --pass: #3fb950; --stop: #f85149; --not-judged: #d29922; --not-applicable: #9198a1;
  --reference: #4493f8; --candidate: #f0883e; --float64: #9198a1; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 32px 24px 64px; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 10px; }
p { margin: 6px 0; } .soft { color: var(--soft); }
.banner { border-left: 6px solid var(--verdict); background: var(--card); padding: 16px 20px; border-radius: 4px; }
.banner .verdict { color: var(--verdict); font-weight: 700; font-size: 22px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); gap: 20px; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; } svg text { fill: var(--soft); } svg .title { fill: var(--text); font-weight: 600; }
.errors { max-width: 760px; } svg .stop { fill: var(--stop); } svg .grid { stroke: var(--line); } svg .axis { stroke: var(--soft); }
table { border-collapse: collapse; width: 100%; font-size: 14px; } th { text-align: left; color: var(--soft); font-weight: 600; }
td, th { border-bottom: 1px solid var(--line); padding: 6px 10px 6px 0; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code, pre { font: 12.5px ui-monospace, monospace; } pre { background: var(--card); padding: 8px 10px; overflow-x: auto; margin: 6px 0; white-space: pre-wrap; word-break: break-word; }
.tag { font-weight: 600; white-space: nowrap; } .pass { color: var(--pass); } .stop { color: var(--stop); }
.not-judged { color: var(--not-judged); } .not-applicable { color: var(--not-applicable); }
details { margin: 6px 0; } summary { cursor: pointer; color: var(--soft); }
)";

std::string element(const std::string& tag, const std::string& content) {
  return "<" + tag + ">" + escaped(content) + "</" + tag + ">";
}

std::string short_number(const json& v) {
  if (!v.is_number()) return v.is_null() ? "–" : v.dump();
  std::ostringstream out;
  out.precision(3);
  out << v.get<double>();
  return out.str();
}

std::string plain(const json& v) { return v.is_string() ? v.get<std::string>() : v.is_null() ? "unknown" : v.dump(); }

void banner(std::ostream& out, const json& sheet) {
  const std::string verdict = sheet.at("verdict");
  const bool rehearsal = sheet.value("rehearsal", false);
  std::string headline = verdict == "pass" ? "PASS" : verdict == "stop" ? "STOP" : "NOT JUDGED";
  if (rehearsal) headline = "REHEARSAL " + headline;
  out << "<div class=\"banner\" style=\"--verdict: var(--" << escaped(verdict) << ")\"><span class=\"verdict\">"
      << escaped(headline) << "</span>" << element("p", sheet.value("summary", ""));
  if (rehearsal) {
    out << "<p class=\"soft\">A rehearsal runs on a plugin that stands in for a TPU. It says nothing of a TPU’s own "
           "precision, "
           "speed, memory or cost, nor of what its release of the backend lacks: that is still to be shown on a "
           "TPU.</p>";
  }
  for (const json& step : sheet.value("next", json::array())) out << "<p><b>Next:</b> " << escaped(step) << "</p>";
  out << "</div>";
}

std::vector<double> values(const json& list) {
  std::vector<double> result;
  for (const json& v : list)
    result.push_back(v.is_number() ? v.get<double>() : std::numeric_limits<double>::quiet_NaN());
  return result;
}

std::string curve(const json& series, const std::string& name, const std::string& title) {
  if (!series.contains(name)) return "";
  const json& s = series[name];
  const std::vector<double> steps = values(s.value("steps", json::array()));
  std::vector<Line> lines;
  for (const auto& [key, dashed] :
       {std::pair<std::string, bool>{"reference", false}, {"candidate", true}, {"float64", true}}) {
    if (s.contains(key) && !s[key].empty()) lines.push_back({key, "var(--" + key + ")", steps, values(s[key]), dashed});
  }
  return lines.empty() ? "" : "<div>" + line_plot(lines, "step", title) + "</div>";
}

// The tensors with the largest candidate error over the reference's own come first.
std::string errors(const json& tensors) {
  std::vector<std::pair<double, Pair>> ranked;
  for (const json& t : tensors) {
    if (!t.contains("rmse_reference") || !t["rmse_reference"].is_number() || !t["rmse_candidate"].is_number()) continue;
    const double reference = t["rmse_reference"], candidate = t["rmse_candidate"];
    const std::string label = t.value("name", "") + " @" + std::to_string(t.value("step", 0));
    ranked.push_back({reference > 0   ? candidate / reference
                      : candidate > 0 ? 1e300
                                      : 0,
                      {label, reference, candidate, t.value("verdict", "") == "stop"}});
  }
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second.label < b.second.label;
  });
  std::vector<Pair> rows;
  for (const auto& [ratio, pair] : ranked) {
    if (rows.size() < 30) rows.push_back(pair);
  }
  return rows.empty() ? "" : "<div class=\"errors\">" + error_plot(rows) + "</div>";
}

void plots(std::ostream& out, const json& sheet) {
  const json series = sheet.value("series", json::object());
  const std::string all = curve(series, "loss", "loss") + curve(series, "grad_norm", "gradient norm");
  const std::string by_tensor = errors(sheet.value("tensors", json::array()));
  if (!all.empty()) out << "<h2>Training, both sides</h2><div class=\"plots\">" << all << "</div>";
  if (!by_tensor.empty()) {
    out << "<h2>Error by tensor</h2><p class=\"soft\">Both sides against the same steps in float64; the largest ratios "
           "of candidate to "
           "reference first.</p>"
        << by_tensor;
  }
}

void checks(std::ostream& out, const json& list) {
  out << "<h2>Checks</h2><table><tr><th>check</th><th>gate</th><th>verdict</th><th>why</th></tr>";
  for (const json& c : list) {
    const std::string verdict = c.at("verdict");
    out << "<tr><td><code>" << escaped(c.at("id")) << "</code><br><span class=\"soft\">"
        << escaped(c.value("title", "")) << "</span></td><td>" << escaped(plain(c.value("gate", json())))
        << "</td><td class=\"tag " << escaped(verdict) << "\">" << escaped(verdict)
        << (c.value("must", false) ? "" : " <span class=\"soft\">(informs)</span>") << "</td><td>"
        << escaped(c.value("why", "")) << "<details><summary>measured, rule, evidence</summary><pre>"
        << escaped(c.value("measured", json::object()).dump(1)) << "</pre><pre>"
        << escaped(c.value("rule", json::object()).dump(1)) << "</pre>";
    for (const json& file : c.value("evidence", json::array())) out << "<code>" << escaped(file) << "</code> ";
    out << "</details></td></tr>";
  }
  out << "</table>";
}

void tensors(std::ostream& out, const json& list) {
  if (list.empty()) return;
  out << "<h2>Tensors</h2><details><summary>" << list.size()
      << " comparisons</summary><table><tr><th>tensor</th><th>step</th><th>dtype</th>"
         "<th>RMSE ref.</th><th>RMSE cand.</th><th>99.9 % ref.</th><th>99.9 % cand.</th><th>max abs</th><th>ULP 99 "
         "%</th><th>passed by</th></tr>";
  for (const json& t : list) {
    out << "<tr><td><code>" << escaped(t.value("name", "")) << "</code> <span class=\"soft\">"
        << escaped(t.value("kind", "")) << "</span></td>";
    for (const char* key : {"step", "dtype"}) out << "<td>" << escaped(plain(t.value(key, json()))) << "</td>";
    for (const char* key :
         {"rmse_reference", "rmse_candidate", "p999_reference", "p999_candidate", "max_abs", "ulp_p99"}) {
      out << "<td class=\"number\">" << escaped(short_number(t.value(key, json()))) << "</td>";
    }
    const std::string verdict = t.value("verdict", "");
    out << "<td class=\"" << escaped(verdict) << "\">"
        << escaped(verdict == "stop" ? "stop" : plain(t.value("passed_by", json()))) << "</td></tr>";
  }
  out << "</table></details>";
}

void facts(std::ostream& out, const std::string& title, const json& object) {
  out << "<h2>" << escaped(title) << "</h2><table>";
  for (const auto& [key, value] : object.items()) {
    const std::string text = plain(value);
    out << "<tr><td><code>" << escaped(key) << "</code></td><td>";
    if (text.size() > 160) {
      out << "<details><summary>" << text.size() << " characters</summary><pre>" << escaped(text) << "</pre></details>";
    } else {
      out << escaped(text);
    }
    out << "</td></tr>";
  }
  out << "</table>";
}

void not_tested(std::ostream& out, const json& list) {
  out << "<h2>Not tested</h2><details open><summary>" << list.size() << " checks</summary><table>";
  for (const json& item : list) {
    out << "<tr><td><code>" << escaped(item.at("id")) << "</code></td><td>" << escaped(item.value("why", ""))
        << "</td></tr>";
  }
  out << "</table></details>";
}

void files(std::ostream& out, const json& hashes) {
  out << "<h2>Evidence</h2><details><summary>SHA-256 of " << hashes.size() << " files</summary><table>";
  for (const auto& [name, hash] : hashes.items()) {
    out << "<tr><td><code>" << escaped(name) << "</code></td><td><code>" << escaped(plain(hash)) << "</code></td></tr>";
  }
  out << "</table></details>";
}

}  // namespace

std::string html(const json& sheet) {
  std::ostringstream out;
  const std::string command = plain(sheet.value("fields", json::object()).value("command", json("")));
  out << "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width\">"
      << "<title>tpupilot: acceptance sheet</title><style>" << kStyle
      << "</style></head><body><h1>Acceptance sheet</h1><p class=\"soft\">"
      << "Is this PyTorch training job ready to move to TPU?</p>";
  banner(out, sheet);
  plots(out, sheet);
  checks(out, sheet.at("checks"));
  tensors(out, sheet.value("tensors", json::array()));
  not_tested(out, sheet.at("not_tested"));
  facts(out, "Fields", sheet.value("fields", json::object()));
  files(out, sheet.value("files", json::object()));
  if (!command.empty()) out << "<h2>To repeat it</h2><pre>" << escaped(command) << "</pre>";
  out << "</body></html>\n";
  return out.str();
}

}  // namespace tpupilot::report
