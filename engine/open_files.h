#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/context.h"

namespace sluice::engine {

using HandleId = Strong<struct HandleTag, uint64_t>;

// One opening of a file, shared by the processes that attached to it. Its writes belong to one transaction at
// a time, which starts with the first write after a sync.
struct OpenFile {
  HandleId id;
  uint64_t secret = 0;
  ContainerId container;
  std::string path;
  wire::Access access = wire::Access::ReadOnly;
  std::optional<SessionId> owner;  // nothing after a restart, until the owner recovered
  std::set<SessionId> sharers;     // with the owner
  std::optional<TxnId> txn;
  burst_buffer::CommitInfo last_sync;
  uint64_t writes_under_way = 0;     // of its transaction, between their admission and their record
  bool committing = false;           // a commit is under way, or waits for those writes
  std::function<void()> when_quiet;  // starts the commit that waits
  std::deque<std::function<void()>> after_commit;  // what came while a commit was under way
  int64_t counter = 0;                             // of the shared file pointer
  bool counter_lost = false;                       // a restart forgot it
  std::optional<Error> broken;                     // why it can no longer commit
};

// Open, attach, recover, size, resize, shape, sync, close, counter. Loop thread.
class OpenFiles {
 public:
  OpenFiles(Context& context, uint64_t secret_seed);

  void open(const Request& request, const Message& message);
  void attach(const Request& request, const wire::AttachT& attach);
  void recover(const Request& request, const Message& message);
  void size(const Request& request, const wire::SizeT& size);
  void resize(const Request& request, const Message& message);
  void shape(const Request& request, const wire::ShapeT& shape);
  void sync(const Request& request, const wire::SyncT& sync);
  void close(const Request& request, const wire::CloseT& close);
  void counter(const Request& request, const wire::CounterT& counter);

  // The handle, if the secret fits and the session shares it; otherwise what to tell the client.
  Result<OpenFile*> find(const Request& request, uint64_t handle, uint64_t secret);
  OpenFile* find(HandleId handle);
  // The handle, if it may be written to now.
  Result<OpenFile*> writable(const Request& request, uint64_t handle, uint64_t secret);
  // The transaction that a write of now belongs to, started when there is none.
  Result<TxnId> transaction(OpenFile& file);

  // A commit takes in every write that was admitted before it.
  void write_began(OpenFile& file) { ++file.writes_under_way; }
  void write_ended(HandleId handle);

  // Told of each Recover that was accepted, before it is answered.
  void on_recovered(std::function<void(const Request&, const OpenFile&, const wire::RecoverT&)> tell) {
    tell_recovered_ = std::move(tell);
  }

  // A session said goodbye, or was evicted: what it owned is dropped; what it shared can, if it was evicted,
  // no longer commit.
  void session_gone(SessionId session, bool evicted);
  void container_removed(ContainerId container, const std::string& path);
  // The recovery window is over: transactions that nobody came back for are dropped.
  void end_recovery();

 private:
  struct Found {
    storage::ContainerInfo info;
    wire::FileInfoT wire_info;
    bool created = false;
  };
  Result<Found> find_or_create(const wire::OpenT& open, const Session& session);
  void opened(const Request& request, const wire::OpenT& open, Found found);
  uint32_t writers_of(ContainerId container) const;
  using Committed = std::function<void(const Result<burst_buffer::CommitInfo>&)>;
  void commit(const Request& request, OpenFile& file, Committed done);
  void run_commit(HandleId handle, uint64_t deadline_ms, Committed done);
  void committed(HandleId handle, Result<burst_buffer::CommitInfo> outcome, const Committed& done);
  void resize(const Request& request, const Message& message, uint64_t deadline_ms);
  void recovered(const Request& request, const Message& message, Found found, bool condemned);
  // The handle can no longer commit; also after a restart. Its transaction, if it has one, is dropped.
  void condemn(HandleId id, std::optional<TxnId> txn);
  void drop(OpenFile& file);
  void erase(HandleId id);

  Context& context_;
  SeededRng secrets_;
  std::map<HandleId, OpenFile> files_;
  std::map<HandleId, TxnId> unclaimed_;  // open transactions of before the restart
  std::function<void(const Request&, const OpenFile&, const wire::RecoverT&)> tell_recovered_;
  bool recovering_ = true;
};

// What a client is told about a container. May block.
Result<wire::FileInfoT> describe(const Parts& parts, const storage::ContainerInfo& info);

// What to tell a client whose request on a file failed with `error`: that the file was removed, when that is
// what lies behind it. May block.
Error or_removed(const Parts& parts, ContainerId container, const std::string& path, Error error);

// Size as a transaction, or a stranger, sees it. May block.
Result<Length> visible_size(const Parts& parts, ContainerId container, std::optional<TxnId> txn);

// Whether the mode bits let this user do that; kAccess with the reason otherwise. User 0 may do everything.
Result<> check_access(const storage::ContainerAttributes& attributes, uint32_t uid, uint32_t gid,
                      wire::Access access);

}  // namespace sluice::engine
