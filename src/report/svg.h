// Plots as inline SVG: no script, no font or file from outside. Colours come from the page's CSS variables.
#pragma once

#include <string>
#include <vector>

namespace tpupilot::report {

struct Line {
  std::string label;
  std::string color;         // a CSS colour, e.g. "var(--reference)"
  std::vector<double> x, y;  // points that are not finite are left out
  bool dashed = false;
};

// Curves over common axes with ticks and a legend. `y_label` stands above the axis.
std::string line_plot(const std::vector<Line>& lines, const std::string& x_label, const std::string& y_label);

struct Pair {
  std::string label;
  double reference = 0, candidate = 0;  // errors, >= 0
  bool stopped = false;
};

// One row a tensor: both sides' errors on a common logarithmic axis. Zero errors stand at the left edge.
std::string error_plot(const std::vector<Pair>& pairs);

std::string escaped(const std::string& text);  // for HTML text and attribute values

}  // namespace tpupilot::report
