#include "client/told.h"

#include <algorithm>
#include <utility>

#include "base/checksum.h"

namespace sluice::client {

Told::Told(std::shared_ptr<const HotMap> map, wire::ReadDoneT answer, ChangeMark mark)
    : map_(std::move(map)), boot_(map_->expected_boot()), answer_(std::move(answer)), mark_(std::move(mark)) {
  size_t sums = 0;
  first_sum_.reserve(answer_.pieces.size());
  for (const auto& piece : answer_.pieces) {
    first_sum_.push_back(sums);
    sums += protocol::whole_blocks(piece.in_slab(), piece.length(), piece.slab_length()).count;
  }
}

Result<> Told::copy_out(uint64_t from, uint64_t bytes, MemoryCursor& to) const {
  const auto& pieces = answer_.pieces;
  auto at = std::ranges::upper_bound(pieces, from, {}, &wire::MappedPiece::at);
  for (size_t index = static_cast<size_t>(at - pieces.begin()); bytes > 0; ++index) {
    const auto& piece = pieces[index - 1];
    const uint64_t skip = from - piece.at();
    const uint64_t now = std::min(bytes, piece.length() - skip);
    auto copied = copy_piece(index - 1, skip, now, to);
    if (!in_charge())
      return fail(Error(ErrorCode::kConflict, "the service was restarted while its bytes were read")
                      .mark_retryable());
    if (!copied) return copied;
    from += now;
    bytes -= now;
  }
  return {};
}

// Up to the first whole block, each whole block, and what is behind the last.
Result<> Told::copy_piece(size_t index, uint64_t from, uint64_t bytes, MemoryCursor& to) const {
  const auto& piece = answer_.pieces[index];
  if (!map_->holds(piece.offset(), piece.length()))
    return fail(ErrorCode::kProtocol, "the service named bytes outside of the hot tier");
  const auto told = protocol::whole_blocks(piece.in_slab(), piece.length(), piece.slab_length());
  const auto whole = protocol::whole_blocks(piece.in_slab() + from, bytes, piece.slab_length());
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t in_slab = piece.in_slab() + from + done;
    const uint64_t block = in_slab / kChecksumBlockBytes;
    const uint64_t block_end = std::min((block + 1) * kChecksumBlockBytes, piece.slab_length());
    const uint64_t part = std::min(block_end - in_slab, bytes - done);
    const bool is_whole = block >= whole.first && block < whole.first + whole.count;
    uint32_t crc = 0;
    for (uint64_t copied = 0; copied < part;) {
      const auto room = to.take(part - copied);
      if (auto ok = map_->copy(piece.offset() + from + done + copied, room); !ok) return ok;
      if (is_whole) crc = crc32c(room, crc);
      copied += room.size();
    }
    if (is_whole && crc != answer_.checksums[first_sum_[index] + (block - told.first)]) {
      return fail(Error(ErrorCode::kCorrupt, "bytes in the hot tier do not match their checksums; read again")
                      .mark_retryable());
    }
    done += part;
  }
  return {};
}

}  // namespace sluice::client
