#include "storage/object_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "base/assert.h"

namespace sluice::storage {
namespace {

struct Named {
  std::string_view name;
  uint32_t k;
  uint32_t m;
};

// The protected classes, by the losses they bear and then by width.
constexpr std::array kProtected = {
    Named{"RP_2", 1, 1}, Named{"EC_2P1", 2, 1}, Named{"EC_4P1", 4, 1},
    Named{"RP_3", 1, 2}, Named{"EC_4P2", 4, 2}, Named{"EC_8P2", 8, 2},
};
constexpr size_t kOtherKind = 8;  // edits that a name of the kind meant is worth
constexpr std::array<std::string_view, 5> kStripedExamples = {"S1", "S2", "S4", "S8", "SX"};

std::string_view kind_of(std::string_view name) {
  return name.substr(0, name.find_first_of("_0123456789"));
}

// Edits (insert, delete, replace) that turn one name into the other.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string upper_case(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return upper;
}

std::string_view nearest_name(std::string_view name) {
  const std::string wanted = upper_case(name.substr(0, 32));
  std::string_view best = kProtected[0].name;
  size_t best_distance = SIZE_MAX;
  auto consider = [&](std::string_view candidate) {
    const bool other_kind = kind_of(wanted) != kind_of(candidate);
    const size_t distance = edit_distance(wanted, candidate) + (other_kind ? kOtherKind : 0);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  };
  for (const Named& named : kProtected) consider(named.name);
  for (const std::string_view candidate : kStripedExamples) consider(candidate);
  return best;
}

}  // namespace

Result<ObjectClass> ObjectClass::parse(std::string_view name) {
  for (const Named& named : kProtected) {
    if (named.name == name) return ObjectClass(named.k, named.m);
  }
  if (name == "SX") {
    ObjectClass spanning;
    spanning.spans_pool_ = true;
    return spanning;
  }
  if (name.size() > 1 && name.front() == 'S' && name[1] != '0') {
    uint32_t shards = 0;
    const auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), shards);
    if (error == std::errc() && end == name.data() + name.size()) {
      if (shards <= kMaxShards) return ObjectClass(shards, 0);
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("object class {} is too wide: a stripe has at most {} shards; use S{} or SX",
                              name, kMaxShards, kMaxShards));
    }
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("there is no object class \"{}\"; the nearest is {} (classes: S1 to S{}, SX, RP_2, RP_3, "
                  "EC_2P1, EC_4P1, EC_4P2, EC_8P2)",
                  name.substr(0, 64), nearest_name(name), kMaxShards));
}

ObjectClass ObjectClass::default_for(size_t targets) {
  if (targets >= 10) return {8, 2};
  if (targets >= 6) return {4, 2};
  if (targets == 5) return {4, 1};
  if (targets >= 3) return {2, 1};
  if (targets == 2) return {1, 1};
  return {1, 0};
}

ObjectClass ObjectClass::protected_of_width(size_t targets) {
  ObjectClass best;
  for (const Named& named : kProtected) {
    if (named.k + named.m == targets && named.k > best.k()) best = ObjectClass(named.k, named.m);
  }
  return best;
}

std::string ObjectClass::name() const {
  if (!specified()) return "default";
  if (spans_pool_) return "SX";
  if (m_ == 0) return fmt::format("S{}", k_);
  if (k_ == 1) return fmt::format("RP_{}", m_ + 1);
  return fmt::format("EC_{}P{}", k_, m_);
}

bool ObjectClass::fits(size_t targets) const {
  return targets > 0 && width() <= targets;
}

Result<ObjectClass> ObjectClass::resolve(size_t targets) const {
  if (targets == 0)
    return fail(ErrorCode::kInvalidArgument, "the pool has no targets; add one before creating files");
  if (spans_pool_) return ObjectClass(static_cast<uint32_t>(std::min<size_t>(targets, kMaxShards)), 0);
  if (!specified()) return default_for(targets);
  if (fits(targets)) return *this;
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("object class {} needs {} targets and the pool has {}; the nearest class that fits is {}",
                  name(), width(), targets, nearest_that_fits(targets).name()));
}

// Keeps the kind (copies or a code) where it can, then the number of losses borne, then the width.
ObjectClass ObjectClass::nearest_that_fits(size_t targets) const {
  SLUICE_ASSERT(targets > 0);
  for (const bool any_kind : {false, true}) {
    for (uint32_t losses = m_; losses > 0; --losses) {
      const Named* widest = nullptr;
      for (const Named& named : kProtected) {
        const bool kind = any_kind || (named.k == 1) == (k_ == 1);
        if (kind && named.m == losses && named.k + named.m <= targets) widest = &named;
      }
      if (widest != nullptr) return {widest->k, widest->m};
    }
  }
  return {m_ == 0 ? static_cast<uint32_t>(std::min<size_t>(targets, kMaxShards)) : 1, 0};
}

}  // namespace sluice::storage
