#include "engine/change_board.h"

namespace sluice::engine {

Result<std::unique_ptr<ChangeBoard>> ChangeBoard::create() {
  auto made = SharedMapping::create(protocol::kChangeBoardBytes);
  if (!made) return fail(made.error());
  return std::unique_ptr<ChangeBoard>(new ChangeBoard(std::move(made->first), std::move(made->second)));
}

}  // namespace sluice::engine
