#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/checked_copy.h"
#include "engine/context.h"
#include "engine/open_files.h"
#include "engine/stage_in.h"

namespace sluice::engine {

// One Read request: gather the bytes (hot tier over stripes over the published version) on a worker, then
// send them inline or by RMA into the client's memory.
//
// A client that maps the hot tier is told where the bytes lie instead: they are brought there when they are
// not, and stay there, pinned, until it says that it has them, or its session ends.
//
// Loop thread.
class Reader {
 public:
  Reader(Context& context, OpenFiles& files) : context_(context), files_(files), stage_in_(context) {}
  void read(const Request& request, const Message& message);
  // True when any of them was held.
  bool release(SessionId session, std::span<const uint64_t> pins);
  void session_gone(SessionId session) { pins_.erase(session); }

 private:
  struct Gathered {
    std::vector<std::byte> bytes;  // of the extents before the end of the file
    std::vector<uint32_t> checksums;
    uint64_t version = 0;
  };
  struct Source {
    ContainerId container;
    std::string path;
    std::optional<TxnId> txn;
  };
  // What goes on between the extents of one request: each block of the hot tier is checked once.
  struct HotBytes {
    std::vector<std::unique_ptr<burst_buffer::Pin>> pins;
    CheckedCopy checked;
  };
  static constexpr size_t kMaxPins = 4096;             // of one session
  static constexpr size_t kMostPiecesWithAhead = 512;  // of an answer that tells ahead

  Result<OpenFile*> readable(const Request& request, const wire::ReadT& ask);
  void gather(const Request& request, const Message& message, const OpenFile& file);
  // True when the request was answered.
  bool tell_places(const Request& request, const OpenFile& file, const wire::ReadT& ask);
  Extent ahead_of(const std::vector<Extent>& extents, uint64_t ahead) const;
  Result<Gathered> gather(const Source& source, const std::vector<Extent>& extents);
  Result<Gathered> gather_once(const Source& source, const std::vector<Extent>& extents);
  Result<std::pair<Epoch, Epoch>> versions(ContainerId container);  // committed, published
  Result<> fill(const Source& source, Extent extent, std::span<std::byte> out, HotBytes& hot);
  Result<> fill_from_hot(const Source& source, const burst_buffer::Segment& segment, std::span<std::byte> out,
                         HotBytes& hot);
  void deliver(const Request& request, const Message& message, Gathered gathered);

  Context& context_;
  OpenFiles& files_;
  StageIn stage_in_;
  std::map<SessionId, std::map<uint64_t, std::unique_ptr<burst_buffer::Pin>>> pins_;  // by request
  uint64_t turn_ = 0;  // reads are spread over the workers
};

}  // namespace sluice::engine
