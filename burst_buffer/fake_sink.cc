#include "burst_buffer/fake_sink.h"

#include "base/assert.h"

namespace sluice::burst_buffer {

Result<> FakeSink::step(const std::string& name) const {
  return on_step_ ? on_step_(name) : Result<>();
}

std::unique_ptr<FakeSink> FakeSink::copy() const {
  auto twin = std::make_unique<FakeSink>(stripe_bytes_);
  const std::lock_guard lock(mutex_);
  twin->files_ = files_;
  twin->removed_ = removed_;
  twin->stripes_ = stripes_;
  twin->held_ = held_;
  twin->published_ = published_;
  twin->next_stripe_ = next_stripe_;
  return twin;
}

Result<> FakeSink::check_exists(ContainerId container) const {
  if (removed_.contains(container)) return fail(ErrorCode::kNotFound, "the container was removed");
  return {};
}

bool FakeSink::is_published(StripeId stripe) const {
  for (const auto& [id, file] : files_) {
    if (file.stripes.contains(stripe)) return true;
  }
  return false;
}

Result<Length> FakeSink::stripe_bytes(ContainerId container) {
  const std::lock_guard lock(mutex_);
  if (auto ok = check_exists(container); !ok) return fail(ok.error());
  return Length(stripe_bytes_);
}

Result<StripeId> FakeSink::place(ContainerId container, std::span<const std::span<const std::byte>> pieces) {
  if (auto ok = step("place"); !ok) return fail(ok.error());
  std::string bytes;
  for (const auto& piece : pieces) bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  SLUICE_ASSERT(!bytes.empty() && bytes.size() <= stripe_bytes_);
  const std::lock_guard lock(mutex_);
  if (auto ok = check_exists(container); !ok) return fail(ok.error());
  const StripeId stripe(next_stripe_++);
  stripes_[stripe] = std::move(bytes);
  held_.insert(stripe);
  return stripe;
}

Result<> FakeSink::publish(ContainerId container, Epoch from, Epoch to, std::optional<Length> cut,
                           Length size, std::span<const PublishedExtent> extents) {
  if (auto ok = step("publish"); !ok) return ok;
  {
    const std::lock_guard lock(mutex_);
    if (auto ok = check_exists(container); !ok) return ok;
    File& file = files_[container];
    if (file.published.epoch != from) return fail(ErrorCode::kConflict, "another version is published");
    SLUICE_ASSERT(from < to);
    if (cut && cut->value < file.bytes.size()) file.bytes.resize(cut->value);
    for (const PublishedExtent& extent : extents) {
      const auto stripe = stripes_.find(extent.stripe);
      SLUICE_ASSERT(stripe != stripes_.end());  // it was discarded too early
      const uint64_t length = extent.extent.length().value;
      SLUICE_ASSERT(extent.stripe_offset + length <= stripe->second.size());
      if (file.bytes.size() < extent.extent.end.value) file.bytes.resize(extent.extent.end.value, '0');
      file.bytes.replace(extent.extent.begin.value, length, stripe->second, extent.stripe_offset, length);
      file.stripes.insert(extent.stripe);
      published_.insert(extent.stripe);
      held_.erase(extent.stripe);
    }
    SLUICE_ASSERT(file.bytes.size() <= size.value);
    file.bytes.resize(size.value, '0');
    file.published = {to, size};
  }
  return step("published");
}

void FakeSink::discard(StripeId stripe) {
  const std::lock_guard lock(mutex_);
  const bool was_held = held_.erase(stripe) == 1;
  SLUICE_ASSERT(was_held || published_.contains(stripe));  // given up once
  if (!is_published(stripe)) stripes_.erase(stripe);
}

void FakeSink::remove(ContainerId container) {
  const std::lock_guard lock(mutex_);
  removed_.insert(container);
  const auto found = files_.find(container);
  if (found == files_.end()) return;
  for (const StripeId stripe : found->second.stripes) {
    if (!held_.contains(stripe)) stripes_.erase(stripe);
  }
  files_.erase(found);
}

std::optional<CommitInfo> FakeSink::find(ContainerId container) const {
  const std::lock_guard lock(mutex_);
  if (removed_.contains(container)) return std::nullopt;
  const auto found = files_.find(container);
  return found == files_.end() ? CommitInfo{} : found->second.published;
}

std::string FakeSink::contents(ContainerId container) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(container);
  return found == files_.end() ? "" : found->second.bytes;
}

std::string FakeSink::stripe_contents(StripeId stripe, uint64_t offset, uint64_t length) const {
  const std::lock_guard lock(mutex_);
  const auto found = stripes_.find(stripe);
  SLUICE_ASSERT(found != stripes_.end() && offset + length <= found->second.size());
  return found->second.substr(offset, length);
}

std::vector<StripeId> FakeSink::stripes() const {
  const std::lock_guard lock(mutex_);
  std::vector<StripeId> all;
  for (const auto& [stripe, bytes] : stripes_) all.push_back(stripe);
  return all;
}

void FakeSink::collect_orphans(const std::set<StripeId>& in_use) {
  const std::lock_guard lock(mutex_);
  std::set<StripeId> needed = in_use;
  for (const auto& [id, file] : files_) needed.insert(file.stripes.begin(), file.stripes.end());
  std::erase_if(stripes_, [&](const auto& entry) { return !needed.contains(entry.first); });
  held_ = in_use;
}

}  // namespace sluice::burst_buffer
