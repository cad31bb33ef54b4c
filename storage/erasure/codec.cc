#include "storage/erasure/codec.h"

#include <isa-l/erasure_code.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "base/assert.h"
#include "storage/object_class.h"

namespace sluice::storage {
namespace {

constexpr size_t kTableBytesPerCoefficient = 32;  // ISA-L's expanded multiplication table

// ISA-L's pointers are not const, but it writes through the outputs only.
unsigned char* isal(const std::byte* bytes) {
  return const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes));
}

void multiply(size_t length, uint32_t k, const std::vector<unsigned char>& tables,
              std::span<const std::byte* const> sources, std::span<std::byte* const> out) {
  SLUICE_ASSERT(length <= INT_MAX && sources.size() == k && k <= kMaxShards && out.size() <= kMaxShards);
  unsigned char* in_pointers[kMaxShards];
  unsigned char* out_pointers[kMaxShards];
  for (size_t i = 0; i < sources.size(); ++i) in_pointers[i] = isal(sources[i]);
  for (size_t i = 0; i < out.size(); ++i) out_pointers[i] = isal(out[i]);
  ec_encode_data(static_cast<int>(length), static_cast<int>(k), static_cast<int>(out.size()),
                 const_cast<unsigned char*>(tables.data()), in_pointers, out_pointers);
}

std::vector<unsigned char> expand(uint32_t k, std::vector<unsigned char>& rows) {
  std::vector<unsigned char> tables(rows.size() * kTableBytesPerCoefficient);
  ec_init_tables(static_cast<int>(k), static_cast<int>(rows.size() / k), rows.data(), tables.data());
  return tables;
}

}  // namespace

Codec::Codec(uint32_t k, uint32_t m) : k_(k), m_(m), generator_(size_t{k + m} * k) {
  SLUICE_ASSERT(k > 0 && k + m <= kMaxShards);
  gf_gen_cauchy1_matrix(generator_.data(), static_cast<int>(k + m), static_cast<int>(k));
  if (k == 1 || m == 1) std::fill(generator_.begin() + size_t{k} * k, generator_.end(), 1);
  if (m == 0) return;
  std::vector<unsigned char> parity_rows(generator_.begin() + size_t{k} * k, generator_.end());
  encode_tables_ = expand(k, parity_rows);
}

void Codec::encode(std::span<const std::byte* const> data, std::span<std::byte* const> parity,
                   size_t length) const {
  SLUICE_ASSERT(data.size() == k_ && parity.size() == m_);
  if (m_ == 0 || length == 0) return;
  if (k_ == 1) {
    for (std::byte* copy : parity) std::memcpy(copy, data[0], length);
    return;
  }
  multiply(length, k_, encode_tables_, data, parity);
}

void Codec::rebuild(std::span<const ShardIndex> survivors, std::span<const std::byte* const> sources,
                    std::span<const ShardIndex> wanted, std::span<std::byte* const> out,
                    size_t length) const {
  SLUICE_ASSERT(survivors.size() == k_ && sources.size() == k_);
  SLUICE_ASSERT(wanted.size() == out.size() && wanted.size() <= k_ + m_ - survivors.size());
  if (wanted.empty() || length == 0) return;
  if (k_ == 1) {
    for (std::byte* copy : out) std::memcpy(copy, sources[0], length);
    return;
  }
  multiply(length, k_, *rebuild_tables(survivors, wanted), sources, out);
}

std::shared_ptr<const Codec::Tables> Codec::rebuild_tables(std::span<const ShardIndex> survivors,
                                                           std::span<const ShardIndex> wanted) const {
  std::pair<ShardSet, ShardSet> key{0, 0};
  for (size_t i = 0; i < survivors.size(); ++i) {
    SLUICE_ASSERT(survivors[i].value < k_ + m_ && (i == 0 || survivors[i - 1] < survivors[i]));
    key.first |= shard_bit(survivors[i]);
  }
  bool ascending = true;
  for (size_t i = 0; i < wanted.size(); ++i) {
    SLUICE_ASSERT(wanted[i].value < k_ + m_ && (key.first & shard_bit(wanted[i])) == 0);
    ascending = ascending && (i == 0 || wanted[i - 1] < wanted[i]);
    key.second |= shard_bit(wanted[i]);
  }
  // The key does not tell the order of `wanted`; only the usual order is remembered.
  if (!ascending) return std::make_shared<const Tables>(make_rebuild_tables(survivors, wanted));
  std::lock_guard lock(mutex_);
  auto& tables = rebuild_tables_[key];
  if (tables == nullptr) tables = std::make_shared<const Tables>(make_rebuild_tables(survivors, wanted));
  return tables;
}

// Survivors = S * data, so data = S^-1 * survivors, and a wanted shard is its generator row times that.
Codec::Tables Codec::make_rebuild_tables(std::span<const ShardIndex> survivors,
                                         std::span<const ShardIndex> wanted) const {
  std::vector<unsigned char> known(size_t{k_} * k_);
  std::vector<unsigned char> inverse(size_t{k_} * k_);
  for (size_t row = 0; row < k_; ++row) {
    std::copy_n(generator_.begin() + size_t{survivors[row].value} * k_, k_, known.begin() + row * k_);
  }
  const int singular = gf_invert_matrix(known.data(), inverse.data(), static_cast<int>(k_));
  SLUICE_ASSERT(singular == 0);
  std::vector<unsigned char> rows(wanted.size() * k_);
  for (size_t row = 0; row < wanted.size(); ++row) {
    const unsigned char* generator_row = generator_.data() + size_t{wanted[row].value} * k_;
    for (size_t column = 0; column < k_; ++column) {
      unsigned char sum = 0;
      for (size_t i = 0; i < k_; ++i) sum ^= gf_mul(generator_row[i], inverse[i * k_ + column]);
      rows[row * k_ + column] = sum;
    }
  }
  return expand(k_, rows);
}

}  // namespace sluice::storage
