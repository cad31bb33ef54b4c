#pragma once

#include <compare>
#include <cstdint>
#include <functional>

// Integers that do not convert into each other. `value` is the way out; it is spelled where units change.
namespace sluice {

template <class Tag, class Rep>
struct Strong {
  Rep value{};

  constexpr Strong() = default;
  constexpr explicit Strong(Rep v) : value(v) {}
  constexpr auto operator<=>(const Strong&) const = default;
};

// Bytes. An Offset is a place, a Length an amount.
using Offset = Strong<struct OffsetTag, uint64_t>;
using Length = Strong<struct LengthTag, uint64_t>;

constexpr Offset operator+(Offset a, Length b) {
  return Offset(a.value + b.value);
}
constexpr Length operator-(Offset a, Offset b) {
  return Length(a.value - b.value);
}
constexpr Length operator+(Length a, Length b) {
  return Length(a.value + b.value);
}
constexpr Length operator-(Length a, Length b) {
  return Length(a.value - b.value);
}

// A version of a container: 0 is "nothing was ever committed", then 1, 2, ...
using Epoch = Strong<struct EpochTag, uint64_t>;
// One open transaction of one container; unique over the life of a pool, never reused.
using TxnId = Strong<struct TxnTag, uint64_t>;
// A container, and with it the one byte array of an MPI file; unique over the life of a pool.
using ContainerId = Strong<struct ContainerTag, uint64_t>;
// A client's stay with a server; the fencing token. Unique over the life of a pool.
using SessionId = Strong<struct SessionTag, uint64_t>;
// A storage object: one immutable, erasure-coded stripe.
using StripeId = Strong<struct StripeTag, uint64_t>;
using ShardIndex = Strong<struct ShardTag, uint32_t>;
using TargetId = Strong<struct TargetTag, uint32_t>;

// The largest file offset plus one. Above it arithmetic on extents could wrap.
inline constexpr uint64_t kMaxFileBytes = uint64_t{1} << 62;

}  // namespace sluice

template <class Tag, class Rep>
struct std::hash<sluice::Strong<Tag, Rep>> {
  size_t operator()(const sluice::Strong<Tag, Rep>& v) const noexcept { return std::hash<Rep>{}(v.value); }
};
