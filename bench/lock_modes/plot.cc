#include "bench/lock_modes/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sluice::bench::lock_modes {
namespace {

constexpr double kPanelWidth = 300;
constexpr double kPanelHeight = 260;
constexpr double kLeft = 62;
constexpr double kTop = 64;
constexpr double kGap = 34;
constexpr double kLegendHeight = 64;

const char* colour(Scheme scheme) {
  switch (scheme) {
    case Scheme::kStandard:
      return "#c0392b";
    case Scheme::kGroup:
      return "#8e6bbf";
    case Scheme::kLockahead:
      return "#1f77b4";
    case Scheme::kAuto:
      return "#17a398";
    case Scheme::kNone:
      return "#7f7f7f";
    case Scheme::kFilePerProcess:
      return "#222222";
  }
  return "#000000";
}

std::string words(double x, double y, const char* anchor, double size, const std::string& text) {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}' font-size='{:.0f}'>{}</text>\n", x, y,
                     anchor, size, text);
}

// The panels share a logarithmic scale of throughput, from `low` to `high` GB/s, both powers of ten.
struct Scale {
  double low = 0.1;
  double high = 10;
  double y(double gbs) const {
    const double share = (std::log10(gbs) - std::log10(low)) / (std::log10(high) - std::log10(low));
    return kTop + kPanelHeight * (1 - share);
  }
};

Scale scale_of(const std::vector<Row>& rows) {
  double least = 1e300;
  double most = 0;
  for (const Row& row : rows) {
    least = std::min(least, row.outcome.bytes_per_s() / 1e9);
    most = std::max(most, row.outcome.bytes_per_s() / 1e9);
  }
  Scale scale{std::pow(10, std::floor(std::log10(least))), std::pow(10, std::ceil(std::log10(most)))};
  if (scale.high <= scale.low) scale.high = scale.low * 10;
  return scale;
}

double x_of(double left, size_t index, size_t count) {
  return left + kPanelWidth * (static_cast<double>(index) + 0.5) / static_cast<double>(count);
}

std::string panel(const Options& options, const std::vector<Row>& rows, const Scale& scale, uint64_t delay_us,
                  double left) {
  std::string svg =
      fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='none' stroke='#999'/>\n",
                  left, kTop, kPanelWidth, kPanelHeight);
  svg += words(left + kPanelWidth / 2, kTop - 8, "middle", 13, fmt::format("message delay {} us", delay_us));
  for (double gbs = scale.low; gbs <= scale.high * 1.001; gbs *= 10) {
    svg += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#ddd'/>\n", left,
                       scale.y(gbs), left + kPanelWidth, scale.y(gbs));
    svg += words(left - 5, scale.y(gbs) + 4, "end", 11, fmt::format("{:g}", gbs));
  }
  const auto& sizes = options.sizes_bytes;
  for (size_t i = 0; i < sizes.size(); ++i)
    svg += words(x_of(left, i, sizes.size()), kTop + kPanelHeight + 16, "middle", 11, size_text(sizes[i]));
  for (const Scheme scheme : options.schemes) {
    std::string points;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Row* row = find_row(rows, delay_us, sizes[i], scheme);
      if (row == nullptr) continue;
      const double x = x_of(left, i, sizes.size());
      const double y = scale.y(row->outcome.bytes_per_s() / 1e9);
      points += fmt::format("{:.1f},{:.1f} ", x, y);
      svg += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'/>\n", x, y, colour(scheme));
    }
    const bool dashed = scheme == Scheme::kFilePerProcess || scheme == Scheme::kNone;
    svg += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='2'{}/>\n", points,
                       colour(scheme), dashed ? " stroke-dasharray='5 4'" : "");
  }
  return svg;
}

}  // namespace

std::string svg_text(const Options& options, const std::vector<Row>& rows) {
  const auto panels = static_cast<double>(options.delays_us.size());
  const double width = kLeft + panels * (kPanelWidth + kGap) + 10;
  const double height = kTop + kPanelHeight + kLegendHeight;
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 0 {0:.0f} "
      "{1:.0f}' "
      "font-family='sans-serif' fill='#222'>\n<rect width='100%' height='100%' fill='#fff'/>\n",
      width, height);
  svg += words(
      12, 22, "start", 15,
      fmt::format("One file, {} aggregators, {} servers: GB/s over the size of a transfer (simulated, {})",
                  options.aggregators, options.servers,
                  options.model.write_through ? "write-through" : "write-back"));
  if (!rows.empty()) {
    const Scale scale = scale_of(rows);
    double left = kLeft;
    for (const uint64_t delay_us : options.delays_us) {
      svg += panel(options, rows, scale, delay_us, left);
      left += kPanelWidth + kGap;
    }
  }
  double x = kLeft;
  for (const Scheme scheme : options.schemes) {
    const double y = kTop + kPanelHeight + 44;
    svg +=
        fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='{}' stroke-width='3'/>\n",
                    x, y - 4, x + 20, y - 4, colour(scheme));
    svg += words(x + 25, y, "start", 12, std::string(to_string(scheme)));
    x += 45 + 8 * static_cast<double>(to_string(scheme).size());
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::bench::lock_modes
