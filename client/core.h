#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "client/lane.h"
#include "client/lock_agent.h"
#include "client/session.h"
#include "transport/transport.h"

namespace sluice::client {

// What the files and the client of one pool share, and how a blocking caller waits for the loop.
class Core {
 public:
  // `loop_runs`: false before the loop started and after it ended; a caller does not wait for a loop that
  // will not answer. `drive`: does the loop's work on the calling thread until the predicate holds, or the
  // loop ended. Without it the caller sleeps while another thread runs the loop.
  using Drive = std::function<bool(const std::function<bool()>&)>;

  // `run_here`: does a piece of the loop's work on the calling thread; false when it could not.
  using RunHere = std::function<bool(const std::function<void()>&)>;
  Core(transport::Transport& transport, Session::Options options, std::function<bool()> loop_runs,
       Drive drive = {}, RunHere run_here = {});

  // Starts something on the loop thread and waits for its outcome. Not from the loop thread.
  template <class T>
  Result<T> wait_for(std::function<void(std::function<void(Result<T>)>)> start) {
    struct Slot {
      std::mutex mutex;
      std::condition_variable ready;
      std::optional<Result<T>> outcome;
    };
    auto slot = std::make_shared<Slot>();
    const std::function<void()> begin = [slot, start = std::move(start)] {
      start([slot](Result<T> outcome) {
        const std::lock_guard lock(slot->mutex);
        slot->outcome.emplace(std::move(outcome));
        slot->ready.notify_all();
      });
    };
    if (!run_here_ || !run_here_(begin)) transport.post(begin);
    std::unique_lock lock(slot->mutex);
    if (!wait_while_running(lock, slot->ready, [&] { return slot->outcome.has_value(); })) {
      return fail(ErrorCode::kAborted, "the connection to the pool has ended");
    }
    return std::move(*slot->outcome);
  }

  // Does a piece of the loop's work and returns when it is done; kAborted when the loop ended before.
  Result<> on_loop(const std::function<void()>& work);

  // Until `done` was seen to hold: other threads may have changed that again. False when the loop ended
  // before.
  bool wait_while_running(std::unique_lock<std::mutex>& lock, std::condition_variable& ready,
                          const std::function<bool()>& done);
  void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& ready,
            const std::function<bool()>& done);

  // Asks the service and waits for an answer of type T (a wire::...T).
  template <class T, class Question>
  Result<T> ask(Question question) {
    auto shared = std::make_shared<Question>(std::move(question));
    return wait_for<T>([this, shared](std::function<void(Result<T>)> done) {
      session.call(std::move(*shared), [done = std::move(done)](Result<Answer> answer) {
        if (!answer) return done(fail(answer.error()));
        done(body_of<T>(*answer));
      });
    });
  }

  template <class T>
  static Result<T> body_of(Answer& answer) {
    auto& body = answer.message->body;
    if (body.type != wire::BodyTraits<typename T::TableType>::enum_value) {
      return fail(ErrorCode::kProtocol, "the service answered with a message of another kind");
    }
    return std::move(*static_cast<T*>(body.value));
  }

  // Tells the service which grants of the local lane it may have back. Loop thread.
  void give_back(bool idle);

  // What the service said of its pool when it was last connected to. Any thread.
  struct PoolTerms {
    std::string hints;  // defaults for files: rules of base/hints.h
    std::string drain;  // when the hot tier is drained
  };
  PoolTerms pool_terms() const {
    const std::lock_guard lock(terms_mutex_);
    return terms_;
  }

  transport::Transport& transport;
  Lane lane;
  Session session;
  LockAgent locks;
  // Bytes of messages that tell of writes that have returned, of all files: so many that they fit in the
  // queue to the service, and a write is on its way when it returns. False when there is no room now.
  bool reserve_behind(size_t bytes) {
    size_t now = behind_bytes_.load();
    while (fits_behind(now, bytes)) {
      if (behind_bytes_.compare_exchange_weak(now, now + bytes)) return true;
    }
    return false;
  }
  bool may_reserve_behind(size_t bytes) const { return fits_behind(behind_bytes_.load(), bytes); }
  void end_behind(size_t bytes) { behind_bytes_ -= bytes; }

 private:
  bool drive(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done);
  static constexpr size_t kMostBehindBytes = 96 * 1024;
  static bool fits_behind(size_t now, size_t more) { return now == 0 || now + more <= kMostBehindBytes; }
  Session::Options with_hooks(Session::Options options);

  std::function<bool()> loop_runs_;
  Drive drive_;
  RunHere run_here_;
  std::atomic<size_t> behind_bytes_{0};
  mutable std::mutex terms_mutex_;
  PoolTerms terms_;
};

}  // namespace sluice::client
