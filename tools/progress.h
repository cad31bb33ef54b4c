#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace sluice::tools {

// A bar on stderr for what takes long; nothing when stderr is no terminal. Redrawn at most ten times a
// second.
class Progress {
 public:
  Progress(std::string what, uint64_t total_bytes);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(uint64_t done_bytes);
  void set_total(uint64_t total_bytes) { total_ = total_bytes; }

 private:
  const bool terminal_;
  const std::string what_;
  uint64_t total_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point started_, last_;
};

}  // namespace sluice::tools
