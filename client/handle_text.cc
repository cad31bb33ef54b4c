#include "client/handle_text.h"

#include <sstream>

#include "client/lock_mode.h"

namespace sluice::client {

std::string HandleText::print() const {
  std::ostringstream text;
  text << "sluice-handle 1 " << handle << ' ' << secret << ' ' << container << ' ' << static_cast<int>(access)
       << ' ' << lock_mode << ' ' << unavailable_after_ms << ' ' << pool;
  return text.str();
}

Result<HandleText> HandleText::parse(const std::string& text) {
  std::istringstream in(text);
  std::string magic;
  int version = 0;
  int access = -1;
  HandleText handle;
  in >> magic >> version >> handle.handle >> handle.secret >> handle.container >> access >>
      handle.lock_mode >> handle.unavailable_after_ms;
  in.get();  // one space; the rest is the pool's path, which may contain more
  std::getline(in, handle.pool, '\0');
  if (text.size() > kMaxHandleBytes || !in || !LockSettings::read(handle.lock_mode) ||
      magic != "sluice-handle" || version != 1 || access < 0 || access > 2 || handle.pool.empty()) {
    return fail(ErrorCode::kInvalidArgument, "this is not the handle of an open file");
  }
  handle.access = static_cast<AccessMode>(access);
  return handle;
}

FileInfo to_file_info(const wire::FileInfoT& told) {
  FileInfo info;
  info.path = told.path;
  info.uid = told.uid;
  info.gid = told.gid;
  info.mode = told.mode;
  info.size_bytes = told.size;
  info.object_class = told.object_class;
  info.chunk_bytes = told.chunk;
  info.targets = told.width;
  info.committed_epoch = told.committed;
  info.persisted_epoch = told.published;
  info.hot_bytes = told.hot_bytes;
  info.drained_bytes = told.drained;
  info.created_s = told.created;
  info.modified_s = told.modified;
  return info;
}

}  // namespace sluice::client
