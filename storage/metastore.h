#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "storage/object_class.h"

namespace sluice::storage {

struct ContainerAttributes {
  std::string path;  // absolute, normalised: "/a/b"
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t mode = 0644;
  ObjectClass object_class;
  Length chunk_size{1024 * 1024};  // bytes of one shard of a full stripe; a power of two, 64 KiB to 16 MiB
  std::string chunk_reason;        // why that chunk size, in words; empty: it is the default
};

struct ContainerInfo {
  ContainerId id;
  ContainerAttributes attributes;
  Epoch published;          // the root pointer: the version that the storage tier holds
  Length size;              // of that version
  uint64_t created_s = 0;   // seconds since 1970
  uint64_t modified_s = 0;  // of the last publication
};

// The small, transactional part of a pool: namespace, roots, manifest deltas and stripe records. The embedded
// one is SQLite; etcd may follow. Thread-safe.
//
// A change is durable on return. A change that failed did not happen, unless the error says outcome_unknown:
// then it may show up at the next open, and the caller must neither rely on it nor undo what it refers to.
// Reading again in the same run answers what this run goes on with.
class MetaStore {
 public:
  virtual ~MetaStore() = default;

  // Ids count up and are never given out twice. kExists when the path is taken. The path is stored as it is:
  // the caller has normalised it.
  virtual Result<ContainerInfo> create(const ContainerAttributes& attributes, uint64_t now_s) = 0;
  virtual Result<ContainerInfo> find(const std::string& path) = 0;
  virtual Result<ContainerInfo> find(ContainerId id) = 0;
  // Containers at or below `path` ("/" for all), by path.
  virtual Result<std::vector<ContainerInfo>> list(const std::string& path) = 0;
  // With its steps. kNotFound when there is none.
  virtual Result<> remove(ContainerId id) = 0;
  // Another chunk size for a container that was never published; kConflict otherwise.
  virtual Result<> shape(ContainerId id, Length chunk_size, const std::string& reason) = 0;

  // A number that was never handed out before, by any run: for stripes, transactions, sessions (`name` keeps
  // them apart). Reserves `count` numbers and answers the first; the first of all is 1.
  virtual Result<uint64_t> allot(const std::string& name, uint64_t count) = 0;

  // The compare-and-set root: appends `delta` as the manifest step from -> to and moves the root, in one
  // transaction. kConflict, with the root as it is in the message, when the root is not `from`.
  virtual Result<> advance(ContainerId id, Epoch from, Epoch to, Length size, const std::string& delta,
                           uint64_t now_s) = 0;
  // The steps of a container, oldest first.
  virtual Result<std::vector<std::string>> steps(ContainerId id) = 0;
  // Replaces the steps up to and including `to` by one that says the same. kConflict when no step ends at
  // `to`.
  virtual Result<> aggregate(ContainerId id, Epoch to, const std::string& merged) = 0;

  // Small named facts of the pool (format version, pool id, configuration).
  virtual Result<std::optional<std::string>> get(const std::string& key) = 0;
  virtual Result<> put(const std::string& key, const std::string& value) = 0;
};

// Creates or opens the database. One process at a time: while another has it open, kBusy names the pool (the
// directory of `path`) and that process. A damaged or foreign file is kCorrupt, one of a later version
// kUnsupported.
Result<std::unique_ptr<MetaStore>> open_sqlite_metastore(const std::filesystem::path& path);

// Lasts as long as the object: for tests and simulation.
std::unique_ptr<MetaStore> make_memory_metastore();

}  // namespace sluice::storage
