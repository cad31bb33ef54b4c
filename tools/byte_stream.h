#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/extent.h"
#include "base/os.h"
#include "base/result.h"
#include "client/client.h"
#include "tools/interruption.h"

// The two kinds of ends that a copy has, alike.
namespace sluice::tools {

// Where bytes come from.
class Source {
 public:
  virtual ~Source() = default;
  virtual uint64_t size() const = 0;
  // The next extent at or after `from` that may hold anything but zeros; nothing when only a hole follows.
  virtual Result<std::optional<Extent>> next_data(uint64_t from) = 0;
  // Fills `into` from `offset`; all of it lies before size().
  virtual Result<> read(uint64_t offset, std::span<std::byte> into) = 0;
  // Fails when the source changed since it was opened.
  virtual Result<> check_unchanged() = 0;
  virtual std::string name() const = 0;
};

// Where bytes go. Nobody sees them before finish(); without it the destination stays as it was.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual Result<> write(uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Exactly this size, zeros where nothing was written.
  virtual Result<> set_size(uint64_t bytes) = 0;
  virtual bool can_read_back() const = 0;
  virtual Result<> read_back(uint64_t offset, std::span<std::byte> into) = 0;
  virtual Result<> finish() = 0;
  virtual std::string name() const = 0;
};

Result<std::unique_ptr<Source>> open_local_source(const std::filesystem::path& path);
Result<std::unique_ptr<Source>> open_pool_source(client::Client& client, const std::string& path);

// `force`: replace what is there. Otherwise kExists, also when it appears during the copy. The file beside
// the destination that holds the bytes until finish() is guarded by `interruption`, if there is one, which
// outlives the sink.
Result<std::unique_ptr<Sink>> open_local_sink(const std::filesystem::path& path, bool force,
                                              Interruption* interruption);
Result<std::unique_ptr<Sink>> open_pool_sink(client::Client& client, const std::string& path, bool force,
                                             const std::string& object_class, uint64_t chunk_bytes);

}  // namespace sluice::tools
