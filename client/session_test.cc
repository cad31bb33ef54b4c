#include "client/session.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/sim/sim_network.h"

// A session against a service that does what it is told, in virtual time.
namespace sluice::client {
namespace {

class Service final : public transport::Handler {
 public:
  explicit Service(transport::Transport& transport) : transport_(transport) { transport.set_handler(this); }

  void on_connected(transport::PeerId) override { ++connections; }
  void on_disconnected(transport::PeerId, const Error&) override {}
  void on_message(transport::PeerId peer, std::span<const std::byte> bytes) override {
    const auto message = protocol::decode(bytes);
    ASSERT_TRUE(message);
    const wire::Body type = (*message)->body.type;
    if (type == wire::Body::Hello) return welcome(peer, (*message)->id, *(*message)->body.AsHello());
    if (refuses.contains(type)) {
      return transport_.disconnect(peer, Error(ErrorCode::kProtocol, "a message of unknown type"));
    }
    if (silent_on.contains(type)) {
      waiting.emplace_back(type, (*message)->id);
      return;
    }
    (void)transport_.send(peer, protocol::encode((*message)->id, wire::DoneT{}));
  }
  void drop() { transport_.disconnect(peer_, Error(ErrorCode::kAborted, "a transfer broke off")); }
  void answer_all_waiting() {
    for (const auto& [type, id] : std::exchange(waiting, {}))
      (void)transport_.send(peer_, protocol::encode(id, wire::DoneT{}));
  }

  bool boots_each_time = false;
  std::set<wire::Body> refuses;    // ends the connection
  std::set<wire::Body> silent_on;  // answers later, or never
  std::vector<std::pair<wire::Body, uint64_t>> waiting;
  unsigned connections = 0;

 private:
  void welcome(transport::PeerId peer, uint64_t id, const wire::HelloT& hello) {
    peer_ = peer;
    if (boots_each_time) ++boot_;
    wire::WelcomeT welcome;
    welcome.session = 7;
    welcome.secret = 8;
    welcome.boot = boot_;
    welcome.resumed = hello.resume != 0 && !boots_each_time;
    welcome.lease_ms = 10'000;
    (void)transport_.send(peer, protocol::encode(id, std::move(welcome)));
  }

  transport::Transport& transport_;
  transport::PeerId peer_;
  uint64_t boot_ = 1;
};

struct Rig {
  Rig() {
    Session::Options options;
    options.locate = [](unsigned) { return transport::Address{"sim://service"}; };
    session.emplace(network.start("client"), std::move(options));
  }
  template <class T>
  std::shared_ptr<std::optional<Result<Answer>>> ask(T question) {
    auto outcome = std::make_shared<std::optional<Result<Answer>>>();
    session->call(std::move(question), [outcome](Result<Answer> answer) {
      ASSERT_FALSE(outcome->has_value());
      outcome->emplace(std::move(answer));
    });
    return outcome;
  }
  static wire::StatT stat() {
    wire::StatT stat;
    stat.path = "/a";
    return stat;
  }
  static wire::LockT lock() {
    wire::LockT lock;
    lock.extents.emplace_back(0, 1);
    return lock;
  }

  transport::SimNetwork network{transport::SimOptions{}};
  Service service{network.start("service")};
  std::optional<Session> session;
};

TEST(Session, a_request_that_ends_the_connection_each_time_fails_and_those_beside_it_do_not) {
  Rig rig;
  rig.service.refuses = {wire::Body::Shape};
  rig.service.silent_on = {wire::Body::Lock};
  const auto before = rig.ask(Rig::lock());
  const auto shape = rig.ask(wire::ShapeT{});
  const auto after = rig.ask(Rig::stat());
  ASSERT_TRUE(rig.network.run_until([&] { return shape->has_value(); }, 5000));
  const Error& error = (*shape)->error();
  EXPECT_EQ(error.code, ErrorCode::kProtocol);
  EXPECT_TRUE(error.outcome_unknown);
  EXPECT_NE(error.message.find("Shape"), std::string::npos) << error.message;
  EXPECT_LT(rig.service.connections, 12u);
  ASSERT_TRUE(rig.network.run_until([&] { return after->has_value(); }, 5000));
  EXPECT_TRUE(**after);
  rig.network.run_for(1000);
  EXPECT_FALSE(before->has_value());
  rig.service.answer_all_waiting();
  ASSERT_TRUE(rig.network.run_until([&] { return before->has_value(); }, 5000));
  EXPECT_TRUE(**before);
  const auto later = rig.ask(Rig::stat());
  ASSERT_TRUE(rig.network.run_until([&] { return later->has_value(); }, 5000));
  EXPECT_TRUE(**later);
}

TEST(Session, each_of_several_such_requests_fails_and_the_others_are_answered) {
  Rig rig;
  rig.service.refuses = {wire::Body::Shape, wire::Body::Explain};
  wire::ExplainT explain;
  explain.path = "/a";
  const auto first = rig.ask(wire::ShapeT{});
  const auto stat = rig.ask(Rig::stat());
  const auto second = rig.ask(explain);
  const auto last = rig.ask(Rig::stat());
  ASSERT_TRUE(rig.network.run_until([&] { return second->has_value() && last->has_value(); }, 10'000));
  EXPECT_EQ((*first)->error().code, ErrorCode::kProtocol);
  EXPECT_EQ((*second)->error().code, ErrorCode::kProtocol);
  EXPECT_TRUE(**stat);
  EXPECT_TRUE(**last);
}

// It was read each time, and what was asked behind it is answered.
TEST(Session, a_request_whose_answer_ends_the_connection_each_time_fails_too) {
  Rig rig;
  rig.service.silent_on = {wire::Body::Lock};
  const auto lock = rig.ask(Rig::lock());
  unsigned rounds = 0;
  while (!lock->has_value() && ++rounds < 2000) {
    rig.network.run_until([&] { return !rig.service.waiting.empty(); }, 1000);
    rig.network.run_for(5);
    rig.service.waiting.clear();
    rig.service.drop();
    rig.network.run_for(100);
  }
  ASSERT_TRUE(lock->has_value());
  EXPECT_EQ((*lock)->error().code, ErrorCode::kProtocol);
}

struct OpenFile final : Recoverable {
  wire::RecoverT recovery() const override { return {}; }
  void lost(const Error&) override {}
};

TEST(Session, a_service_that_answers_nothing_after_its_welcome_is_given_up) {
  Rig rig;
  OpenFile file;
  rig.session->add(&file);
  const auto first = rig.ask(Rig::stat());
  ASSERT_TRUE(rig.network.run_until([&] { return first->has_value(); }, 1000));
  rig.service.boots_each_time = true;
  rig.service.refuses = {wire::Body::Recover, wire::Body::Stat};
  const auto second = rig.ask(Rig::stat());
  ASSERT_TRUE(rig.network.run_until([&] { return second->has_value(); }, 40'000));
  EXPECT_EQ((*second)->error().code, ErrorCode::kUnavailable);
}

TEST(Session, an_answer_begins_the_time_of_a_service_that_stays_away_anew) {
  Rig rig;
  rig.service.silent_on = {wire::Body::Lock};
  const auto lock = rig.ask(Rig::lock());
  // Longer in all than a service may stay away, but never for long, and no connection ends at once.
  for (int i = 0; i < 25; ++i) {
    rig.network.run_for(2000);
    rig.service.drop();
  }
  rig.network.run_for(500);
  EXPECT_FALSE(lock->has_value());
  rig.service.answer_all_waiting();
  ASSERT_TRUE(rig.network.run_until([&] { return lock->has_value(); }, 1000));
  EXPECT_TRUE(**lock);
}

}  // namespace
}  // namespace sluice::client
