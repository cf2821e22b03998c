#include "report/svg.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

namespace tpupilot::report {
namespace {

std::string number(double v, int digits = 4) {
  std::ostringstream out;
  out << std::setprecision(digits) << v;
  return out.str();
}

std::string coordinate(double v) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << v;
  return out.str();
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();

  void include(double v) {
    if (!std::isfinite(v)) return;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  void settle() {  // never empty
    if (!(low <= high)) low = 0, high = 1;
    if (low == high) low -= 0.5, high += 0.5;
  }
};

// 1, 2 or 5 times a power of ten: about `count` steps over the range.
double tick_step(const Range& r, int count) {
  const double raw = (r.high - r.low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

std::vector<double> ticks(const Range& r, int count) {
  const double step = tick_step(r, count);
  std::vector<double> values;
  const double first = std::ceil(r.low / step);
  for (int i = 0; (first + i) * step <= r.high + step * 1e-9; ++i) values.push_back((first + i) * step);
  return values;
}

std::string text(double x, double y, const std::string& anchor, const std::string& content,
                 const std::string& extra = "") {
  return "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" text-anchor=\"" + anchor + "\"" + extra + ">" +
         escaped(content) + "</text>";
}
std::string segment(double x1, double y1, double x2, double y2, const std::string& cls) {
  return "<line class=\"" + cls + "\" x1=\"" + coordinate(x1) + "\" y1=\"" + coordinate(y1) + "\" x2=\"" +
         coordinate(x2) + "\" y2=\"" + coordinate(y2) + "\"/>";
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string line_plot(const std::vector<Line>& lines, const std::string& x_label, const std::string& y_label) {
  constexpr double kWidth = 640, kHeight = 280, kLeft = 62, kRight = 12, kTop = 34, kBottom = 38;
  Range x, y;
  for (const Line& line : lines) {
    for (const double v : line.x) x.include(v);
    for (const double v : line.y) y.include(v);
  }
  x.settle();
  y.settle();
  const double margin = (y.high - y.low) * 0.05;
  y.low -= margin;
  y.high += margin;
  const auto at_x = [&](double v) { return kLeft + (v - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight); };
  const auto at_y = [&](double v) {
    return kHeight - kBottom - (v - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  };

  std::ostringstream out;
  out << "<svg viewBox=\"0 0 " << kWidth << " " << kHeight << "\" role=\"img\" aria-label=\"" << escaped(y_label)
      << "\">";
  for (const double v : ticks(y, 5)) {
    out << segment(kLeft, at_y(v), kWidth - kRight, at_y(v), "grid") << text(kLeft - 8, at_y(v) + 4, "end", number(v));
  }
  for (const double v : ticks(x, 8)) {
    if (v == std::floor(v)) out << text(at_x(v), kHeight - kBottom + 18, "middle", number(v, 7));
  }
  out << segment(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "axis")
      << text(kWidth - kRight, kHeight - 4, "end", x_label) << text(4, 14, "start", y_label, " class=\"title\"");
  double legend = kWidth - kRight;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const double width = 7.0 * static_cast<double>(line->label.size());
    out << text(legend, 14, "end", line->label) << "<line x1=\"" << coordinate(legend - width - 26)
        << "\" y1=\"10\" x2=\"" << coordinate(legend - width - 6) << "\" y2=\"10\" stroke=\"" << line->color
        << "\" stroke-width=\"2\"" << (line->dashed ? " stroke-dasharray=\"4 3\"" : "") << "/>";
    legend -= width + 44;
  }
  for (const Line& line : lines) {
    out << "<polyline fill=\"none\" stroke=\"" << line.color << "\" stroke-width=\"" << (line.dashed ? 1.5 : 2) << "\""
        << (line.dashed ? " stroke-dasharray=\"5 4\"" : "") << " points=\"";
    for (size_t i = 0; i < std::min(line.x.size(), line.y.size()); ++i) {
      if (std::isfinite(line.y[i])) out << coordinate(at_x(line.x[i])) << "," << coordinate(at_y(line.y[i])) << " ";
    }
    out << "\"/>";
  }
  out << "</svg>";
  return out.str();
}

std::string error_plot(const std::vector<Pair>& pairs) {
  constexpr double kWidth = 640, kRow = 18, kLeft = 250, kRight = 16, kTop = 40, kBottom = 26;
  Range decades;
  for (const Pair& p : pairs) {
    for (const double v : {p.reference, p.candidate}) {
      if (v > 0) decades.include(std::log10(v));
    }
  }
  decades.settle();
  decades.low = std::floor(decades.low) - 0.3;
  decades.high = std::ceil(decades.high);
  const double height = kTop + kRow * static_cast<double>(pairs.size()) + kBottom;
  const auto at = [&](double v) {
    const double decade = v > 0 && std::isfinite(v) ? std::log10(v) : v > 0 ? decades.high : decades.low;
    return kLeft + (decade - decades.low) / (decades.high - decades.low) * (kWidth - kLeft - kRight);
  };
  std::ostringstream out;
  out << "<svg viewBox=\"0 0 " << kWidth << " " << height << "\" role=\"img\" aria-label=\"error by tensor\">";
  const int step = std::max(1, static_cast<int>((decades.high - decades.low) / 8));
  for (int d = static_cast<int>(std::ceil(decades.low)); d <= decades.high; d += step) {
    const double x = at(std::pow(10.0, d));
    out << segment(x, kTop - 6, x, height - kBottom, "grid") << text(x, height - 8, "middle", "1e" + std::to_string(d));
  }
  out << text(4, 14, "start", "RMSE against the float64 run", " class=\"title\"") << "<circle cx=\"" << kWidth - 180
      << "\" cy=\"10\" r=\"4\" fill=\"var(--reference)\"/>" << text(kWidth - 170, 14, "start", "reference")
      << "<circle cx=\"" << kWidth - 90 << "\" cy=\"10\" r=\"4\" fill=\"var(--candidate)\"/>"
      << text(kWidth - 80, 14, "start", "candidate");
  double y = kTop + kRow / 2;
  for (const Pair& p : pairs) {
    std::string label = p.label.size() > 34 ? "…" + p.label.substr(p.label.size() - 33) : p.label;
    out << text(kLeft - 10, y + 4, "end", label, p.stopped ? " class=\"stop\"" : "")
        << segment(at(p.reference), y, at(p.candidate), y, "grid") << "<circle cx=\"" << coordinate(at(p.reference))
        << "\" cy=\"" << coordinate(y) << "\" r=\"4\" fill=\"var(--reference)\"><title>reference "
        << number(p.reference) << "</title></circle><circle cx=\"" << coordinate(at(p.candidate)) << "\" cy=\""
        << coordinate(y) << "\" r=\"4\" fill=\"var(--candidate)\"><title>candidate " << number(p.candidate)
        << "</title></circle>";
    y += kRow;
  }
  out << "</svg>";
  return out.str();
}

}  // namespace tpupilot::report
