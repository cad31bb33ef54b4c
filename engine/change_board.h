#pragma once

#include <memory>

#include "base/shared_mapping.h"
#include "base/types.h"
#include "protocol/lane_layout.h"

namespace sluice::engine {

// The service's side of the words by which processes on its host know whether what they were told of a
// container still holds (protocol/lane_layout.h). A process that writes nonsense there deceives the readers
// of its own user, whose files it could write anyway. Any thread.
class ChangeBoard {
 public:
  static Result<std::unique_ptr<ChangeBoard>> create();

  // What a reader of this container sees has changed.
  void note(ContainerId container) {
    protocol::change_word(memory_.data(), container.value).fetch_add(1, std::memory_order_seq_cst);
  }
  const UniqueFd& descriptor() const { return fd_; }

 private:
  ChangeBoard(SharedMapping memory, UniqueFd fd) : memory_(std::move(memory)), fd_(std::move(fd)) {}

  const SharedMapping memory_;
  const UniqueFd fd_;
};

}  // namespace sluice::engine
