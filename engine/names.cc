#include "engine/names.h"

#include <algorithm>
#include <map>

#include "base/log.h"
#include "base/printable.h"

namespace sluice::engine {
namespace {

constexpr uint64_t kDrainPollMs = 5;

std::string plain(const std::string& path) {
  return protocol::normalise_path(path).value();
}

Error unknown(Error error, const std::string& path) {
  if (error.code == ErrorCode::kNotFound)
    error.message = path + " does not exist in the pool; `sluice ls /` shows what does";
  return error;
}

std::string explain_text(const Parts& parts, const storage::ContainerInfo& info) {
  const auto& attributes = info.attributes;
  const auto& object_class = attributes.object_class;
  const uint64_t stripe = attributes.chunk_size.value * object_class.k();
  std::string text;
  auto line = [&text](const std::string& what) { text.append(what).append("\n"); };
  line("file: " + printable_name(attributes.path));
  line("object class: " + object_class.name() + " (" + std::to_string(object_class.k()) + " data + " +
       std::to_string(object_class.m()) + " redundant shards; survives " + std::to_string(object_class.m()) +
       " lost targets); set sluice_object_class before the file is created");
  line("chunk size: " + std::to_string(attributes.chunk_size.value) + " bytes (" +
       (attributes.chunk_reason.empty() ? "the default" : printable_name(attributes.chunk_reason)) +
       "), a full stripe holds " + std::to_string(stripe) + "; set striping_unit before the file is created");
  line(
      "write path: the store is log-structured, so small and unaligned writes need no read-modify-write; "
      "collective writes of small pieces are exchanged between the ranks first, all others are sent as they "
      "are: MPI_File_get_info tells sluice_collective and sluice_collective_reason, and "
      "romio_cb_write=enable "
      "or disable decides otherwise");
  line("committed epoch: " + std::to_string(parts.hot.committed(info.id, info.published).value) +
       ", on the storage tier: " + std::to_string(info.published.value));
  line("in the hot tier, committed or not: " + std::to_string(parts.hot.undrained_bytes(info.id)) + " bytes");
  const auto targets = parts.store.target_status();
  const auto missing =
      std::count_if(targets.begin(), targets.end(), [](const auto& target) { return target.gone(); });
  if (missing > 0 || parts.store.missing_shards() > 0)
    line("redundancy now: " + std::to_string(missing) + " targets of the pool are missing, and " +
         std::to_string(parts.store.missing_shards()) +
         " shards are to be put back: it survives fewer losses than its class until that is done; see "
         "`sluice status`");
  if (auto layout = parts.store.layout(info.id)) {
    std::map<StripeId, uint64_t> stripes;
    for (const auto& placed : *layout) stripes[placed.place.stripe] += placed.extent.length().value;
    line("layout: " + std::to_string(layout->size()) + " extents in " + std::to_string(stripes.size()) +
         " stripes");
  }
  return text;
}

}  // namespace

void Names::stat(const Request& request, const wire::StatT& stat) {
  const std::string path = plain(stat.path);
  context_.off_loop(
      std::hash<std::string>{}(path),
      [this, path]() -> Result<wire::FileInfoT> {
        auto info = context_.parts.store.find(path);
        if (!info) return fail(unknown(info.error(), path));
        return describe(context_.parts, *info);
      },
      [this, request](Result<wire::FileInfoT> told) {
        if (!told) return context_.refuse(request, told.error());
        context_.answer(request, std::move(*told));
      });
}

void Names::list(const Request& request, const wire::ListT& list) {
  context_.off_loop(
      0,
      [this, path = plain(list.path), after = list.after]() -> Result<wire::ListedT> {
        auto all = context_.parts.store.list(path);
        if (!all) return fail(all.error());
        wire::ListedT listed;
        for (const auto& info : *all) {
          if (info.attributes.path <= after) continue;
          if (listed.files.size() == protocol::kListPage) {
            listed.more = true;
            break;
          }
          auto told = describe(context_.parts, info);
          if (!told && told.error().code == ErrorCode::kNotFound) continue;  // removed meanwhile
          if (!told) return fail(told.error());
          listed.files.push_back(std::make_unique<wire::FileInfoT>(std::move(*told)));
        }
        return listed;
      },
      [this, request](Result<wire::ListedT> listed) {
        if (!listed) return context_.refuse(request, listed.error());
        context_.answer(request, std::move(*listed));
      });
}

void Names::remove(const Request& request, const wire::RemoveT& remove) {
  const std::string path = plain(remove.path);
  const Session session = *context_.sessions.find(request.session);
  context_.off_loop(
      std::hash<std::string>{}(path),
      [this, path, session]() -> Result<ContainerId> {
        auto info = context_.parts.store.find(path);
        if (!info) return fail(unknown(info.error(), path));
        if (session.uid != 0 && session.uid != info->attributes.uid) {
          return fail(ErrorCode::kAccess, "only the owner of " + path + " (user " +
                                              std::to_string(info->attributes.uid) + ") may remove it");
        }
        // The name first: a crash after it leaves records of a container that is no more, which recovery
        // drops.
        if (auto removed = context_.parts.store.remove(info->id); !removed) return fail(removed.error());
        auto stripes = context_.parts.hot.forget(info->id);
        if (stripes) {
          for (const StripeId stripe : *stripes) context_.parts.store.discard(stripe);
        } else {
          log::warn("{} is removed; its staged bytes go at the next start: {}", path,
                    stripes.error().message);
        }
        return info->id;
      },
      [this, request, path](Result<ContainerId> removed) {
        if (!removed) return context_.refuse(request, removed.error());
        files_.container_removed(*removed, path);
        locks_.container_removed(*removed);
        context_.answer(request, wire::DoneT{});
      });
}

void Names::explain(const Request& request, const wire::ExplainT& explain) {
  const std::string path = plain(explain.path);
  context_.off_loop(
      std::hash<std::string>{}(path),
      [this, path]() -> Result<std::string> {
        auto info = context_.parts.store.find(path);
        if (!info) return fail(unknown(info.error(), path));
        return explain_text(context_.parts, *info);
      },
      [this, request](Result<std::string> text) {
        if (!text) return context_.refuse(request, text.error());
        wire::ExplainedT explained;
        explained.text = std::move(*text);
        context_.answer(request, std::move(explained));
      });
}

void Names::await_drained(const Request& request, const wire::AwaitDrainedT& await) {
  const uint64_t deadline_ms = context_.parts.transport.now_ms() + await.timeout_ms;
  context_.off_loop(
      0,
      [this, path = plain(await.path)]() -> Result<std::vector<Wanted>> {
        auto all = context_.parts.store.list(path);
        if (!all) return fail(all.error());
        if (all->empty() && path != "/") return fail(unknown(Error(ErrorCode::kNotFound, ""), path));
        std::vector<Wanted> wanted;
        for (const auto& info : *all) {
          const Epoch committed = context_.parts.hot.committed(info.id, info.published);
          if (committed > info.published) wanted.push_back({info.id, committed});
        }
        return wanted;
      },
      [this, request, deadline_ms, path = plain(await.path)](Result<std::vector<Wanted>> wanted) {
        if (!wanted) return context_.refuse(request, wanted.error());
        context_.drain->drain_all();
        check_drained(
            {request, std::move(*wanted), deadline_ms, path, context_.drain->status().failed_rounds});
      });
}

void Names::check_drained(Await await) {
  context_.off_loop(
      0,
      [this, wanted = await.wanted] {
        std::vector<Wanted> left;
        for (const auto& want : wanted) {
          auto info = context_.parts.store.find(want.container);
          // A container that was removed has nothing left to wait for.
          if (info && info->published < want.epoch) left.push_back(want);
          if (!info && info.error().code != ErrorCode::kNotFound) left.push_back(want);
        }
        return left;
      },
      [this, await](std::vector<Wanted> left) mutable {
        if (left.empty()) return context_.answer(await.request, wire::DoneT{});
        const uint64_t now_ms = context_.parts.transport.now_ms();
        const auto status = context_.drain->status();
        // What was in the way may have been put right just before it was asked: the drain must have failed
        // since.
        if (blocked_.given_up(now_ms, status) && status.failed_rounds > await.failed_rounds)
          return context_.refuse(await.request, blocked_error(status, await.path));
        if (now_ms >= await.deadline_ms) {
          return context_.refuse(
              await.request, Error(ErrorCode::kTimedOut, "the drain did not finish in time (" + status.state +
                                                             "); see `sluice status`")
                                 .mark_retryable());
        }
        await.wanted = std::move(left);
        context_.parts.transport.after_ms(kDrainPollMs,
                                          [this, await = std::move(await)] { check_drained(await); });
      });
}

}  // namespace sluice::engine
