#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/shared_mapping.h"
#include "client/hot_map.h"
#include "client/pieces.h"

namespace sluice::client {

// Where a container's word on the board of changes stood at a moment.
class ChangeMark {
 public:
  ChangeMark() = default;  // never stands
  ChangeMark(std::shared_ptr<const SharedMapping> board, ContainerId container)
      : board_(std::move(board)), container_(container), count_(board_ ? word().load() : 0) {}
  bool is_of(const std::shared_ptr<const SharedMapping>& board) const { return board_ == board; }
  bool still_stands() const { return board_ && word().load() == count_; }

 private:
  std::atomic<uint64_t>& word() const { return protocol::change_word(board_->data(), container_.value); }

  std::shared_ptr<const SharedMapping> board_;
  ContainerId container_;
  uint64_t count_ = 0;
};

// What the service told of where the bytes of a read lie in the hot tier: those that were asked for, in the
// order asked, and with one extent some behind it. They stay there while the pin is held. Immutable; any
// thread.
class Told {
 public:
  // `mark`: of before the service was asked.
  Told(std::shared_ptr<const HotMap> map, wire::ReadDoneT answer, ChangeMark mark);

  uint64_t bytes() const { return answer_.bytes; }  // of what was asked for
  uint64_t ahead() const { return answer_.ahead; }
  uint64_t pin() const { return answer_.pin; }
  // Nothing that a reader sees has changed since: what was told is what the service would tell now.
  bool holds() const { return mark_.still_stands() && in_charge(); }

  // Copies bytes [from, from + bytes) of what was told, and compares checksums where a block is whole.
  // kConflict (retryable): the service that told is not in charge any more.
  Result<> copy_out(uint64_t from, uint64_t bytes, MemoryCursor& to) const;

 private:
  Result<> copy_piece(size_t index, uint64_t from, uint64_t bytes, MemoryCursor& to) const;
  bool in_charge() const { return map_->boot() == boot_; }

  const std::shared_ptr<const HotMap> map_;
  const uint64_t boot_;
  const wire::ReadDoneT answer_;
  const ChangeMark mark_;
  std::vector<size_t> first_sum_;  // of each piece, in the answer's checksums
};

}  // namespace sluice::client
