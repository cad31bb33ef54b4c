#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tools/sizes.h"

namespace sluice::tools {
namespace {
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr size_t kBarWidth = 24;
}  // namespace

Progress::Progress(std::string what, uint64_t total_bytes)
    : terminal_(::isatty(STDERR_FILENO) == 1),
      what_(std::move(what)),
      total_(total_bytes),
      started_(std::chrono::steady_clock::now()),
      last_(started_) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::show(uint64_t done_bytes) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now - last_ < kRedraw) return;
  last_ = now;
  drawn_ = true;
  const double part =
      total_ == 0 ? 1.0 : std::min(1.0, static_cast<double>(done_bytes) / static_cast<double>(total_));
  const double seconds = std::chrono::duration<double>(now - started_).count();
  const auto rate = static_cast<uint64_t>(static_cast<double>(done_bytes) / std::max(seconds, 1e-3));
  const auto filled = static_cast<size_t>(part * kBarWidth);
  const std::string line =
      fmt::format("\r\033[K{} [{}{}] {:3.0f} %  {} of {}  {}/s", what_, std::string(filled, '='),
                  std::string(kBarWidth - filled, ' '), part * 100, print_bytes(done_bytes),
                  print_bytes(total_), print_bytes(rate));
  std::fputs(line.c_str(), stderr);
}

}  // namespace sluice::tools
