#include <gtest/gtest.h>

#include "report/html.h"
#include "report/svg.h"
#include "report/terminal.h"

namespace tpupilot::report {
namespace {

using nlohmann::json;

json sheet(const std::string& verdict) {
  return {{"schema", 1},
          {"verdict", verdict},
          {"asked_gates", {0, 1}},
          {"passed_gates", verdict == "pass" ? json{0, 1} : json{0}},
          {"ready", false},
          {"rehearsal", true},
          {"summary", "one <b>sentence</b>"},
          {"next", {"look at par.loss"}},
          {"fields", {{"torch", "2.13.0"}, {"command", "tpupilot run job"}, {"slice", nullptr}}},
          {"checks",
           {{{"id", "par.loss"},
             {"gate", 1},
             {"must", true},
             {"verdict", verdict},
             {"title", "Loss"},
             {"measured", {{"x", 1}}},
             {"rule", json::object()},
             {"evidence", {"candidate/events.jsonl"}},
             {"why", "because of \"this\" & that"}}}},
          {"not_tested",
           {{{"id", "cmp.cost"}, {"why", "gate 3 was not asked for"}}, {{"id", "cmp.window"}, {"why", "same"}}}},
          {"series", {{"loss", {{"steps", {0, 1, 2}}, {"reference", {3, 2, 1}}, {"candidate", {3, 2, nullptr}}}}}},
          {"tensors",
           {{{"name", "model/w"},
             {"kind", "state"},
             {"step", 0},
             {"dtype", "float32"},
             {"rmse_reference", 1e-8},
             {"rmse_candidate", 3e-7},
             {"passed_by", nullptr},
             {"verdict", "stop"}}}},
          {"files", {{"reference/events.jsonl", std::string(64, 'a')}}}};
}

TEST(TerminalTest, SaysVerdictReasonGatesAndWhatIsNext) {
  const std::string text = terminal_text(sheet("stop"), false);
  EXPECT_NE(text.find("REHEARSAL STOP  one"), std::string::npos) << text;
  EXPECT_NE(text.find("par.loss  stop            because of \"this\" & that"), std::string::npos) << text;
  EXPECT_NE(text.find("gates asked for: 0, 1; passed: 0; ready for a TPU: no"), std::string::npos) << text;
  EXPECT_NE(text.find("2 checks were not tested (cmp 2)"), std::string::npos) << text;
  EXPECT_NE(text.find("next: look at par.loss"), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(terminal_text(sheet("stop"), true).find("\x1b[1;31m"), std::string::npos);
}

TEST(HtmlTest, IsOnePageWithoutScriptOrNetwork) {
  const std::string page = html(sheet("pass"));
  for (const char* forbidden : {"<script", "http:", "https:", "src=", "@import", "url("}) {
    EXPECT_EQ(page.find(forbidden), std::string::npos) << forbidden;
  }
  EXPECT_NE(page.find("REHEARSAL PASS"), std::string::npos);
  EXPECT_NE(page.find("still to be shown on a TPU"), std::string::npos);
  EXPECT_NE(page.find("gate 3 was not asked for"), std::string::npos);
  EXPECT_NE(page.find(std::string(64, 'a')), std::string::npos);
}

TEST(HtmlTest, EscapesWhatCameFromOutside) {
  const std::string page = html(sheet("stop"));
  EXPECT_EQ(page.find("<b>sentence</b>"), std::string::npos);
  EXPECT_NE(page.find("one &lt;b&gt;sentence&lt;/b&gt;"), std::string::npos);
  EXPECT_NE(page.find("because of &quot;this&quot; &amp; that"), std::string::npos);
}

TEST(SvgTest, LeavesOutPointsThatAreNotNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string plot = line_plot({{"a", "red", {0, 1, 2}, {1, nan, 3}}}, "step", "loss");
  const size_t points = plot.find("points=\"");
  const std::string list = plot.substr(points, plot.find("\"", points + 8) - points);
  EXPECT_EQ(std::count(list.begin(), list.end(), ','), 2) << list;
  EXPECT_EQ(plot.find("nan"), std::string::npos);
  EXPECT_NE(line_plot({}, "step", "loss").find("<svg"), std::string::npos);
}

TEST(SvgTest, ZeroAndInfiniteErrorsHaveAPlace) {
  const std::string plot =
      error_plot({{"a", 0, 1e-7, false}, {"b", 1e-8, std::numeric_limits<double>::infinity(), true}});
  EXPECT_EQ(plot.find("nan"), std::string::npos);
  EXPECT_EQ(plot.find("cx=\"inf"), std::string::npos);
}

}  // namespace
}  // namespace tpupilot::report
