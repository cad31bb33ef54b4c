#include "client/handle_text.h"

#include <algorithm>
#include <sstream>

#include "client/lock_mode.h"

namespace sluice::client {

namespace {

// Texts may hold blanks and ends of lines, so their length stands before them.
void put(std::ostream& out, const std::string& text) {
  out << ' ' << text.size() << ' ' << text;
}
void take(std::istream& in, std::string& text) {
  size_t bytes = 0;
  in >> bytes;
  in.get();
  text.resize(std::min(bytes, kMaxHandleBytes));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
}

// The numbers of a FileInfo, in their order in the text.
template <class Info, class Use>
void each_number(Info& info, const Use& use) {
  use(info.uid), use(info.gid), use(info.mode), use(info.size_bytes), use(info.chunk_bytes);
  use(info.targets), use(info.committed_epoch), use(info.persisted_epoch), use(info.hot_bytes);
  use(info.drained_bytes), use(info.created_s), use(info.modified_s);
}

}  // namespace

std::string HandleText::print() const {
  std::ostringstream text;
  text << "sluice-handle 2 " << handle << ' ' << secret << ' ' << container << ' ' << static_cast<int>(access)
       << ' ' << unavailable_after_ms;
  each_number(info, [&](auto number) { text << ' ' << number; });
  for (const std::string* word : {&lock_mode, &drain, &info.object_class, &info.path, &pool})
    put(text, *word);
  return text.str();
}

Result<HandleText> HandleText::parse(const std::string& text) {
  std::istringstream in(text);
  std::string magic;
  int version = 0;
  int access = -1;
  HandleText handle;
  FileInfo& info = handle.info;
  in >> magic >> version >> handle.handle >> handle.secret >> handle.container >> access >>
      handle.unavailable_after_ms;
  each_number(info, [&](auto& number) { in >> number; });
  for (std::string* word : {&handle.lock_mode, &handle.drain, &info.object_class, &info.path, &handle.pool})
    take(in, *word);
  if (text.size() > kMaxHandleBytes || !in || !LockSettings::read(handle.lock_mode) ||
      magic != "sluice-handle" || version != 2 || access < 0 || access > 2 || handle.pool.empty()) {
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
