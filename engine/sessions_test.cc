#include "engine/sessions.h"

#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

using transport::PeerId;
constexpr uint64_t kLeaseMs = 1000;

TEST(Sessions, a_client_that_comes_back_in_time_goes_on_over_its_new_connection) {
  Sessions sessions(kLeaseMs);
  sessions.add(SessionId(1), 77, PeerId(10), 0);
  sessions.peer_lost(PeerId(10));
  EXPECT_EQ(sessions.of_peer(PeerId(10)), nullptr);
  std::optional<PeerId> replaced;
  Session* back = sessions.resume(SessionId(1), 77, PeerId(11), 500, replaced);
  ASSERT_NE(back, nullptr);
  EXPECT_FALSE(replaced);
  EXPECT_EQ(sessions.of_peer(PeerId(11)), back);
  EXPECT_TRUE(sessions.expired(1400).empty()) << "resuming renews the lease";
}

TEST(Sessions, whoever_ends_a_connection_it_is_told_once_whose_it_was) {
  Sessions sessions(kLeaseMs);
  std::vector<SessionId> told;
  sessions.on_peer_lost([&](SessionId id) { told.push_back(id); });
  sessions.add(SessionId(1), 77, PeerId(10), 0);
  sessions.peer_lost(PeerId(11));
  EXPECT_TRUE(told.empty());
  sessions.peer_lost(PeerId(10));
  sessions.peer_lost(PeerId(10));
  EXPECT_EQ(told, std::vector{SessionId(1)});
}

TEST(Sessions, resuming_over_a_live_connection_names_the_one_it_replaces) {
  Sessions sessions(kLeaseMs);
  sessions.add(SessionId(1), 77, PeerId(10), 0);
  std::optional<PeerId> replaced;
  ASSERT_NE(sessions.resume(SessionId(1), 77, PeerId(11), 10, replaced), nullptr);
  EXPECT_EQ(replaced, PeerId(10));
  EXPECT_EQ(sessions.of_peer(PeerId(10)), nullptr);
}

TEST(Sessions, a_wrong_secret_or_an_unknown_session_is_nobody) {
  Sessions sessions(kLeaseMs);
  sessions.add(SessionId(1), 77, PeerId(10), 0);
  std::optional<PeerId> replaced;
  EXPECT_EQ(sessions.resume(SessionId(1), 78, PeerId(11), 10, replaced), nullptr);
  EXPECT_EQ(sessions.resume(SessionId(2), 77, PeerId(11), 10, replaced), nullptr);
  EXPECT_NE(sessions.of_peer(PeerId(10)), nullptr) << "the rightful connection is untouched";
}

TEST(Sessions, silence_for_a_lease_expires_and_a_word_renews) {
  Sessions sessions(kLeaseMs);
  Session& session = sessions.add(SessionId(1), 77, PeerId(10), 0);
  EXPECT_TRUE(sessions.expired(kLeaseMs - 1).empty());
  sessions.renew(session, 900);
  EXPECT_TRUE(sessions.expired(kLeaseMs).empty());
  EXPECT_EQ(sessions.expired(900 + kLeaseMs), std::vector<SessionId>{SessionId(1)});
}

TEST(Sessions, remembered_answers_are_bounded_and_large_ones_are_not_kept) {
  Sessions sessions(kLeaseMs);
  Session& session = sessions.add(SessionId(1), 77, PeerId(10), 0);
  const std::vector<std::byte> small(10);
  for (uint64_t id = 1; id <= Sessions::kRememberedAnswers + 5; ++id) Sessions::remember(session, id, small);
  EXPECT_EQ(session.answers.size(), Sessions::kRememberedAnswers);
  EXPECT_FALSE(session.answers.contains(1));
  Sessions::remember(session, 2, small);
  EXPECT_TRUE(session.answers.contains(2)) << "the newest answer is kept, however old its request";
  Sessions::remember(session, 1000, std::vector<std::byte>(Sessions::kMaxRememberedBytes + 1));
  EXPECT_FALSE(session.answers.contains(1000));
}

}  // namespace
}  // namespace sluice::engine
