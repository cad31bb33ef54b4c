#include "engine/open_files.h"

#include <utility>

#include "base/assert.h"
#include "base/log.h"
#include "storage/object_class.h"

namespace sluice::engine {

namespace {

constexpr uint64_t kRoomPollMs = 20;

Error not_open(const char* why) {
  return {ErrorCode::kInvalidArgument,
          std::string("the file handle is not open here (") + why + "); open the file again"};
}

Error removed_error(const std::string& path) {
  return {ErrorCode::kNotFound, path + " was removed while it was open"};
}

wire::SyncedT to_wire(const burst_buffer::CommitInfo& info) {
  wire::SyncedT synced;
  synced.epoch = info.epoch.value;
  synced.size = info.size.value;
  return synced;
}

}  // namespace

Result<> check_access(const storage::ContainerAttributes& attributes, uint32_t uid, uint32_t gid,
                      wire::Access access) {
  if (uid == 0) return {};
  const uint32_t shift = uid == attributes.uid ? 6 : gid == attributes.gid ? 3 : 0;
  const uint32_t granted = (attributes.mode >> shift) & 7;
  uint32_t wanted = 0;
  if (access != wire::Access::WriteOnly) wanted |= 4;
  if (access != wire::Access::ReadOnly) wanted |= 2;
  if ((granted & wanted) == wanted) return {};
  return fail(ErrorCode::kAccess, "no permission to " + std::string((wanted & 2) != 0 ? "write " : "read ") +
                                      attributes.path + " as user " + std::to_string(uid) +
                                      "; it belongs to user " + std::to_string(attributes.uid));
}

Error or_removed(const Parts& parts, ContainerId container, const std::string& path, Error error) {
  if (error.code != ErrorCode::kNotFound) return error;
  const auto info = parts.store.find(container);
  return !info && info.error().code == ErrorCode::kNotFound ? removed_error(path) : error;
}

Result<Length> visible_size(const Parts& parts, ContainerId container, std::optional<TxnId> txn) {
  // The drain may move the published version between the two questions: ask again until it stood still.
  while (true) {
    auto before = parts.store.find(container);
    if (!before) return fail(before.error());
    const Length size = parts.hot.size(container, txn, before->size);
    auto after = parts.store.find(container);
    if (!after) return fail(after.error());
    if (before->published == after->published) return size;
  }
}

Result<wire::FileInfoT> describe(const Parts& parts, const storage::ContainerInfo& info) {
  auto size = visible_size(parts, info.id, std::nullopt);
  if (!size) return fail(size.error());
  wire::FileInfoT told;
  told.path = info.attributes.path;
  told.uid = info.attributes.uid;
  told.gid = info.attributes.gid;
  told.mode = info.attributes.mode;
  told.size = size->value;
  told.object_class = info.attributes.object_class.name();
  told.chunk = info.attributes.chunk_size.value;
  told.committed = parts.hot.committed(info.id, info.published).value;
  told.published = info.published.value;
  told.hot_bytes = parts.hot.undrained_bytes(info.id);
  told.drained = info.size.value;
  told.created = info.created_s;
  told.modified = info.modified_s;
  told.container = info.id.value;
  told.width = info.attributes.object_class.width();
  return told;
}

OpenFiles::OpenFiles(Context& context, uint64_t secret_seed) : context_(context), secrets_(secret_seed) {
  // The session field of a transaction's record holds the handle: handles outlive sessions and restarts.
  for (const auto& open : context_.parts.hot.open_transactions())
    unclaimed_[HandleId(open.session.value)] = open.txn;
}

// --- open ---

Result<OpenFiles::Found> OpenFiles::find_or_create(const wire::OpenT& open, const Session& session) {
  const std::string path = protocol::normalise_path(open.path).value();
  if (path == "/")
    return fail(ErrorCode::kInvalidArgument,
                "/ is not a file; name a file below it, as in sluice:/checkpoint");
  Found found;
  auto existing = context_.parts.store.find(path);
  if (existing) {
    if (open.create && open.exclusive) {
      return fail(ErrorCode::kExists,
                  path + " exists already; remove it with `sluice rm " + path + "` or choose another name");
    }
    if (auto ok = check_access(existing->attributes, session.uid, session.gid, open.access); !ok)
      return fail(ok.error());
    found.info = *existing;
  } else if (existing.error().code != ErrorCode::kNotFound) {
    return fail(existing.error());
  } else if (!open.create) {
    return fail(ErrorCode::kNotFound, path + " does not exist in the pool; `sluice ls /` shows what does");
  } else {
    storage::ContainerAttributes attributes;
    attributes.path = path;
    attributes.uid = session.uid;
    attributes.gid = session.gid;
    attributes.mode = open.mode & 0777;
    if (!open.object_class.empty()) {
      auto parsed = storage::ObjectClass::parse(open.object_class);
      if (!parsed) return fail(parsed.error());
      attributes.object_class = *parsed;
    } else if (open.striping_factor != 0) {
      const auto advised = storage::ObjectClass::protected_of_width(open.striping_factor);
      if (advised.specified() && advised.fits(context_.parts.store.target_status().size()))
        attributes.object_class = advised;
    }
    if (open.chunk != 0) {
      attributes.chunk_size = Length(open.chunk);
      attributes.chunk_reason = "asked for when the file was created";
    }
    auto created = context_.parts.store.create(attributes);
    // Somebody else created it in the same moment: theirs is as good, unless it had to be ours.
    if (!created && created.error().code == ErrorCode::kExists && !open.exclusive)
      created = context_.parts.store.find(path);
    if (!created) return fail(created.error());
    found.info = *created;
    found.created = true;
  }
  auto told = describe(context_.parts, found.info);
  if (!told) return fail(told.error());
  found.wire_info = std::move(*told);
  return found;
}

void OpenFiles::open(const Request& request, const Message& message) {
  const Session session = *context_.sessions.find(request.session);
  const auto key = std::hash<std::string>{}(protocol::normalise_path(message->body.AsOpen()->path).value());
  context_.off_loop(
      key, [this, session, message] { return find_or_create(*message->body.AsOpen(), session); },
      [this, request, message](Result<Found> found) {
        if (!found) return context_.refuse(request, found.error());
        opened(request, *message->body.AsOpen(), std::move(*found));
      });
}

void OpenFiles::opened(const Request& request, const wire::OpenT& open, Found found) {
  if (context_.sessions.find(request.session) == nullptr)
    return;  // left meanwhile: nobody would ever close it
  auto number = context_.handle_ids.next();
  if (!number) return context_.refuse(request, number.error());
  // A number that somebody made up in a recovery may stand there; it is nobody's.
  OpenFile& file = files_.insert_or_assign(HandleId(*number), OpenFile{}).first->second;
  file.id = HandleId(*number);
  file.secret = secrets_.next();
  file.container = found.info.id;
  file.path = found.info.attributes.path;
  file.access = open.access;
  file.owner = request.session;
  file.sharers.insert(request.session);
  file.last_sync = {Epoch(found.wire_info.committed), Length(found.wire_info.size)};
  context_.file_count = files_.size();
  wire::OpenedT opened;
  opened.writers = writers_of(file.container) - (file.access == wire::Access::ReadOnly ? 0 : 1);
  if (open.truncate && !found.created && found.wire_info.size != 0) {
    auto txn = transaction(file);
    auto cut = txn ? context_.parts.hot.truncate(*txn, Length(0)) : Result<uint64_t>(fail(txn.error()));
    if (!cut) {
      drop(file);
      return context_.refuse(request, cut.error());
    }
  }
  opened.handle = file.id.value;
  opened.secret = file.secret;
  opened.info = std::make_unique<wire::FileInfoT>(std::move(found.wire_info));
  context_.answer(request, std::move(opened));
}

uint32_t OpenFiles::writers_of(ContainerId container) const {
  uint32_t writers = 0;
  for (const auto& [id, file] : files_)
    writers += file.container == container && file.access != wire::Access::ReadOnly ? 1 : 0;
  return writers;
}

void OpenFiles::attach(const Request& request, const wire::AttachT& attach) {
  OpenFile* file = find(HandleId(attach.handle));
  if (file == nullptr && recovering_) {
    // Its owner may still be on the way back.
    constexpr uint64_t kAgainMs = 50;
    context_.parts.transport.after_ms(kAgainMs, [this, request, attach] { this->attach(request, attach); });
    return;
  }
  if (file == nullptr || file->secret != attach.secret)
    return context_.refuse(request, not_open("it was closed, or the process that opened it is gone"));
  if (context_.sessions.find(request.session) == nullptr) return;  // left while it waited
  file->sharers.insert(request.session);
  context_.answer(request, wire::DoneT{});
}

namespace {

std::string condemned_key(HandleId id) {
  return "condemned handle " + std::to_string(id.value);
}

Error condemned_error(const std::string& path) {
  return {ErrorCode::kAborted,
          "writes to " + path +
              " that had been accepted were dropped, because the service had to give up a "
              "process that had it open; the file stands at its last sync"};
}

}  // namespace

void OpenFiles::recover(const Request& request, const Message& message) {
  const wire::RecoverT& ask = *message->body.AsRecover();
  const HandleId id(ask.handle);
  if (find(id) == nullptr && !recovering_)
    return context_.refuse(request, not_open("its recovery window has passed"));
  struct Looked {
    Found found;
    bool condemned = false;
  };
  context_.off_loop(
      ask.container,
      [this, id, container = ContainerId(ask.container)]() -> Result<Looked> {
        Looked looked;
        auto info = context_.parts.store.find(container);
        if (!info) return fail(info.error());
        auto told = describe(context_.parts, *info);
        if (!told) return fail(told.error());
        auto condemned = context_.parts.meta.get(condemned_key(id));
        if (!condemned) return fail(condemned.error());
        looked.found = {*info, std::move(*told), false};
        looked.condemned = condemned->has_value();
        return looked;
      },
      [this, request, message](Result<Looked> looked) {
        if (!looked) return context_.refuse(request, looked.error());
        recovered(request, message, std::move(looked->found), looked->condemned);
      });
}

void OpenFiles::recovered(const Request& request, const Message& message, Found found, bool condemned) {
  if (context_.sessions.find(request.session) == nullptr) return;
  const wire::RecoverT& ask = *message->body.AsRecover();
  const HandleId id(ask.handle);
  OpenFile* file = find(id);
  if (file == nullptr) {
    if (!recovering_) return context_.refuse(request, not_open("its recovery window has passed"));
    // After a restart the first sharer to come back brings the handle with it. The secret cannot be checked
    // then: it was never written down. Only those who knew the handle know its number.
    file = &files_[id];
    file->id = id;
    file->secret = ask.secret;
    file->container = found.info.id;
    file->path = found.info.attributes.path;
    file->access = ask.access;
    file->counter_lost = true;
    file->last_sync = {Epoch(found.wire_info.committed), Length(found.wire_info.size)};
    if (const auto open = unclaimed_.find(id); open != unclaimed_.end()) {
      file->txn = open->second;
      unclaimed_.erase(open);
    }
    if (condemned) file->broken = condemned_error(file->path);
    context_.file_count = files_.size();
  }
  if (file->secret != ask.secret || file->container != ContainerId(ask.container)) {
    return context_.refuse(request, not_open("the secret is wrong"));
  }
  if (ask.owner) file->owner = request.session;
  file->sharers.insert(request.session);
  if (!file->broken && ask.last_record != 0 && !context_.parts.hot.survived(ask.last_record)) {
    Error lost(ErrorCode::kAborted, "writes to " + file->path +
                                        " that had been accepted were lost when the service's machine went "
                                        "down; the file stands at its last sync");
    file->broken = lost.mark_data_loss();
  }
  if (tell_recovered_) tell_recovered_(request, *file, ask);
  context_.answer(request, wire::DoneT{});
}

// --- finding ---

OpenFile* OpenFiles::find(HandleId handle) {
  const auto at = files_.find(handle);
  return at == files_.end() ? nullptr : &at->second;
}

Result<OpenFile*> OpenFiles::find(const Request& request, uint64_t handle, uint64_t secret) {
  OpenFile* file = find(HandleId(handle));
  if (file == nullptr) return fail(not_open("it was closed, or its owner is gone"));
  if (file->secret != secret) return fail(not_open("the secret is wrong"));
  if (!file->sharers.contains(request.session)) return fail(not_open("this process did not attach to it"));
  return file;
}

Result<OpenFile*> OpenFiles::writable(const Request& request, uint64_t handle, uint64_t secret) {
  auto file = find(request, handle, secret);
  if (!file) return file;
  if ((*file)->access == wire::Access::ReadOnly) {
    return fail(ErrorCode::kAccess, (*file)->path + " was opened for reading only; open it for writing");
  }
  if ((*file)->broken) return fail(*(*file)->broken);
  return file;
}

Result<TxnId> OpenFiles::transaction(OpenFile& file) {
  if (file.txn) return *file.txn;
  auto number = context_.txn_ids.next();
  if (!number) return fail(number.error());
  const TxnId txn(*number);
  if (auto begun = context_.parts.hot.begin(txn, file.container, SessionId(file.id.value)); !begun)
    return fail(begun.error());
  file.txn = txn;
  return txn;
}

// --- size ---

void OpenFiles::size(const Request& request, const wire::SizeT& size) {
  auto file = find(request, size.handle, size.secret);
  if (!file) return context_.refuse(request, file.error());
  context_.off_loop(
      (*file)->container.value,
      [this, container = (*file)->container, path = (*file)->path, txn = (*file)->txn]() -> Result<Length> {
        auto visible = visible_size(context_.parts, container, txn);
        if (!visible) return fail(or_removed(context_.parts, container, path, visible.error()));
        return visible;
      },
      [this, request](Result<Length> visible) {
        if (!visible) return context_.refuse(request, visible.error());
        wire::SizeIsT told;
        told.size = visible->value;
        context_.answer(request, std::move(told));
      });
}

void OpenFiles::resize(const Request& request, const Message& message) {
  resize(request, message, context_.parts.transport.now_ms() + context_.options.full_wait_ms);
}

void OpenFiles::resize(const Request& request, const Message& message, uint64_t deadline_ms) {
  const wire::ResizeT& ask = *message->body.AsResize();
  auto file = writable(request, ask.handle, ask.secret);
  if (!file) return context_.refuse(request, file.error());
  if ((*file)->committing) {
    (*file)->after_commit.push_back(
        [this, request, message, deadline_ms] { resize(request, message, deadline_ms); });
    return;
  }
  const auto refuse = [this, request, message, deadline_ms](const Error& error) {
    if (error.code != ErrorCode::kNoSpace || context_.parts.transport.now_ms() >= deadline_ms) {
      return context_.refuse(request, error);
    }
    context_.drain->want_room(Length(1));  // the staging log is full: the drain makes room there too
    context_.parts.transport.after_ms(
        kRoomPollMs, [this, request, message, deadline_ms] { resize(request, message, deadline_ms); });
  };
  auto txn = transaction(**file);
  if (!txn) return refuse(txn.error());
  write_began(**file);
  context_.off_loop((*file)->container.value,
                    [this, container = (*file)->container, path = (*file)->path, txn = *txn,
                     wanted = Length(ask.size), only_grow = ask.only_grow]() -> Result<> {
                      if (only_grow) {
                        auto now = visible_size(context_.parts, container, txn);
                        if (!now) return fail(or_removed(context_.parts, container, path, now.error()));
                        if (*now >= wanted) return {};
                      }
                      auto record = context_.parts.hot.truncate(txn, wanted);
                      if (!record) return fail(or_removed(context_.parts, container, path, record.error()));
                      return {};
                    },
                    [this, request, refuse, id = (*file)->id](Result<> done) {
                      write_ended(id);
                      if (!done) return refuse(done.error());
                      context_.answer(request, wire::DoneT{});
                    });
}

void OpenFiles::write_ended(HandleId handle) {
  OpenFile* file = find(handle);
  if (file == nullptr) return;  // dropped meanwhile
  SLUICE_ASSERT(file->writes_under_way > 0);
  if (--file->writes_under_way == 0 && file->when_quiet) std::exchange(file->when_quiet, {})();
}

void OpenFiles::shape(const Request& request, const wire::ShapeT& shape) {
  auto file = writable(request, shape.handle, shape.secret);
  if (!file) return context_.refuse(request, file.error());
  const ContainerId container = (*file)->container;
  const bool quiet = std::none_of(files_.begin(), files_.end(), [container](const auto& entry) {
    return entry.second.container == container && entry.second.txn;
  });
  // In turn with the container's commits, so that nothing of it is being drained.
  context_.off_loop(
      container.value,
      [this, container, path = (*file)->path, quiet, chunk = Length(shape.chunk),
       reason = shape.reason]() -> Result<wire::ShapedT> {
        auto info = context_.parts.store.find(container);
        if (!info) return fail(or_removed(context_.parts, container, path, info.error()));
        const bool empty = quiet && context_.parts.hot.committed(container, info->published) == Epoch(0) &&
                           context_.parts.hot.undrained_bytes(container) == 0;
        wire::ShapedT shaped;
        shaped.chunk = info->attributes.chunk_size.value;
        if (!empty || !info->attributes.chunk_reason.empty()) return shaped;
        if (auto ok = context_.parts.store.shape(container, chunk, reason); !ok) return fail(ok.error());
        shaped.chunk = chunk.value;
        return shaped;
      },
      [this, request](Result<wire::ShapedT> shaped) {
        if (!shaped) return context_.refuse(request, shaped.error());
        context_.answer(request, std::move(*shaped));
      });
}

// --- sync and close ---

void OpenFiles::commit(const Request& request, OpenFile& file, Committed done) {
  if (file.committing) {
    file.after_commit.push_back([this, request, id = file.id, done = std::move(done)]() mutable {
      if (OpenFile* later = find(id)) return commit(request, *later, std::move(done));
      done(fail(not_open("it was closed meanwhile")));
    });
    return;
  }
  if (file.broken) return done(fail(*file.broken));
  if (!file.txn) return done(file.last_sync);
  file.committing = true;
  const uint64_t deadline_ms = context_.parts.transport.now_ms() + context_.options.full_wait_ms;
  auto start = [this, id = file.id, deadline_ms, done = std::move(done)]() mutable {
    run_commit(id, deadline_ms, std::move(done));
  };
  if (file.writes_under_way == 0) return start();
  file.when_quiet = std::move(start);
}

void OpenFiles::run_commit(HandleId handle, uint64_t deadline_ms, Committed done) {
  OpenFile* file = find(handle);
  SLUICE_ASSERT(file != nullptr && file->committing);  // a committing file is never erased
  if (!file->txn)
    return committed(
        handle, file->broken ? Result<burst_buffer::CommitInfo>(fail(*file->broken)) : file->last_sync, done);
  context_.off_loop(
      file->container.value,
      [this, txn = *file->txn, container = file->container,
       path = file->path]() -> Result<burst_buffer::CommitInfo> {
        auto outcome = context_.parts.hot.commit(txn);
        if (!outcome) return fail(or_removed(context_.parts, container, path, outcome.error()));
        return outcome;
      },
      [this, handle, deadline_ms, done = std::move(done)](Result<burst_buffer::CommitInfo> outcome) mutable {
        const bool full = !outcome && outcome.error().code == ErrorCode::kNoSpace;
        if (!full || context_.parts.transport.now_ms() >= deadline_ms)
          return committed(handle, std::move(outcome), done);
        context_.drain->want_room(Length(1));  // the staging log is full: the drain makes room there too
        context_.parts.transport.after_ms(kRoomPollMs,
                                          [this, handle, deadline_ms, done = std::move(done)]() mutable {
                                            run_commit(handle, deadline_ms, std::move(done));
                                          });
      });
}

void OpenFiles::committed(HandleId handle, Result<burst_buffer::CommitInfo> outcome, const Committed& done) {
  OpenFile* file = find(handle);
  SLUICE_ASSERT(file != nullptr);
  file->committing = false;
  if (outcome) {
    file->txn.reset();
    file->last_sync = *outcome;
    ++context_.syncs;
    context_.drain->kick();
  } else if (!outcome.error().retryable && !file->broken) {
    // Whether the commit record reached the medium is not known, so nothing more may be built on this
    // transaction.
    Error failed = outcome.error();
    file->broken = failed.mark_outcome_unknown();
  }
  auto waiting = std::exchange(file->after_commit, {});
  done(outcome);
  for (auto& work : waiting) work();
}

void OpenFiles::sync(const Request& request, const wire::SyncT& sync) {
  auto file = find(request, sync.handle, sync.secret);
  if (!file) return context_.refuse(request, file.error());
  commit(request, **file, [this, request](const auto& outcome) {
    if (!outcome) return context_.refuse(request, outcome.error());
    context_.answer(request, to_wire(*outcome));
  });
}

void OpenFiles::close(const Request& request, const wire::CloseT& close) {
  auto file = find(request, close.handle, close.secret);
  if (!file) return context_.refuse(request, file.error());
  if ((*file)->owner != request.session)
    return context_.refuse(request, {ErrorCode::kInvalidArgument,
                                     "only the process that opened " + (*file)->path + " may close it"});
  if (!close.commit) {
    const auto last = (*file)->last_sync;
    drop(**file);
    return context_.answer(request, to_wire(last));
  }
  commit(request, **file, [this, request, id = (*file)->id](const auto& outcome) {
    // Closed in any case: a close that failed is told once, and leaves nothing that could be closed again.
    if (OpenFile* done = find(id)) drop(*done);
    if (outcome) return context_.answer(request, to_wire(*outcome));
    Error failed = outcome.error();
    failed.retryable = false;
    failed.message += "; the file stands at its last sync";
    context_.refuse(request, failed);
  });
}

void OpenFiles::counter(const Request& request, const wire::CounterT& counter) {
  auto file = find(request, counter.handle, counter.secret);
  if (!file) return context_.refuse(request, file.error());
  wire::CounterWasT was;
  was.value = (*file)->counter;
  if (counter.op == wire::CounterOp::Exchange) {
    (*file)->counter = counter.value;
    (*file)->counter_lost = false;
  } else if ((*file)->counter_lost) {
    return context_.refuse(
        request,
        {ErrorCode::kAborted, "the shared file pointer of " + (*file)->path +
                                  " was lost when the service was restarted; set it again with a seek"});
  } else {
    // Unsigned, because a hostile delta may overflow.
    (*file)->counter =
        static_cast<int64_t>(static_cast<uint64_t>((*file)->counter) + static_cast<uint64_t>(counter.value));
  }
  context_.answer(request, std::move(was));
}

// --- ends ---

void OpenFiles::drop(OpenFile& file) {
  if (file.committing) {
    file.after_commit.push_back([this, id = file.id] {
      if (OpenFile* later = find(id)) drop(*later);
    });
    return;
  }
  if (file.txn) {
    if (auto aborted = context_.parts.hot.abort(*file.txn); !aborted) {
      log::warn("{}: transaction {} not aborted now, but at the next start: {}", file.path, file.txn->value,
                aborted.error().message);
    }
    file.txn.reset();
  }
  erase(file.id);
}

void OpenFiles::erase(HandleId id) {
  const auto at = files_.find(id);
  SLUICE_ASSERT(at != files_.end() && !at->second.committing);
  files_.erase(at);
  context_.file_count = files_.size();
}

void OpenFiles::condemn(HandleId id, std::optional<TxnId> txn) {
  if (const OpenFile* file = find(id)) context_.changed(file->container);
  context_.off_loop(
      id.value,
      [this, id, txn]() -> Result<> {
        // The word first: a client that comes back after a restart must not take the missing transaction for
        // a committed one.
        auto written = context_.parts.meta.put(condemned_key(id), "1");
        if (!written) return written;
        return txn ? context_.parts.hot.abort(*txn) : Result<>();
      },
      [id](Result<> done) {
        if (!done)
          log::warn("handle {}: its transaction is dropped at the next start: {}", id.value,
                    done.error().message);
      });
}

void OpenFiles::session_gone(SessionId session, bool evicted) {
  std::vector<HandleId> owned;
  for (auto& [id, file] : files_) {
    if (file.sharers.erase(session) == 0) continue;
    if (file.owner == session) {
      owned.push_back(id);
    } else if (evicted && file.access != wire::Access::ReadOnly && !file.broken) {
      file.broken =
          Error(ErrorCode::kAborted, "a process that had " + file.path +
                                         " open for writing died; the file stands at its last sync");
      condemn(id, std::nullopt);
    }
  }
  for (const HandleId id : owned) {
    OpenFile* file = find(id);
    if (file == nullptr) continue;
    if (evicted && file->txn && !file->committing) condemn(id, std::exchange(file->txn, std::nullopt));
    drop(*file);
  }
}

void OpenFiles::container_removed(ContainerId container, const std::string& path) {
  context_.changed(container);
  for (auto& [id, file] : files_) {
    if (file.container != container) continue;
    file.broken = removed_error(path);
    if (file.committing || !file.txn) continue;
    // One that began while the container was being removed is still there.
    (void)context_.parts.hot.abort(*std::exchange(file.txn, std::nullopt));
  }
}

void OpenFiles::end_recovery() {
  recovering_ = false;
  for (const auto& [handle, txn] : unclaimed_) {
    log::info("transaction {} of handle {} was not resumed; dropped", txn.value, handle.value);
    condemn(handle, txn);
  }
  unclaimed_.clear();
  std::vector<HandleId> ownerless;
  for (const auto& [id, file] : files_) {
    if (!file.owner) ownerless.push_back(id);
  }
  for (const HandleId id : ownerless) {
    OpenFile* file = find(id);
    if (file == nullptr) continue;
    if (file->txn && !file->committing) condemn(id, std::exchange(file->txn, std::nullopt));
    drop(*file);
  }
}

}  // namespace sluice::engine
