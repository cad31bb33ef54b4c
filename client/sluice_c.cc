#include "client/sluice.h"

#include <cstdio>
#include <memory>
#include <string>

#include "client/client.h"

struct sluice_pool {
  std::shared_ptr<sluice::client::Client> client;
};
struct sluice_file {
  std::unique_ptr<sluice::client::File> file;
};

namespace {

using sluice::Extent;
using sluice::Length;
using sluice::Offset;
using sluice::Result;
namespace client = sluice::client;

static_assert(SLUICE_E_INTERNAL == static_cast<int>(sluice::ErrorCode::kInternal));
static_assert(SLUICE_E_ABORTED == static_cast<int>(sluice::ErrorCode::kAborted));

int report(const sluice::Error& cause, sluice_error* error) {
  if (error != nullptr) {
    error->code = static_cast<int>(cause.code);
    error->retryable = cause.retryable ? 1 : 0;
    error->data_loss = cause.data_loss ? 1 : 0;
    error->outcome_unknown = cause.outcome_unknown ? 1 : 0;
    std::snprintf(error->message, sizeof error->message, "%s", cause.message.c_str());
  }
  return -1;
}

template <class T>
int report(const Result<T>& result, sluice_error* error) {
  return result ? 0 : report(result.error(), error);
}

int no_null(sluice_error* error) {
  return report(sluice::Error(sluice::ErrorCode::kInvalidArgument, "a required pointer is NULL"), error);
}

Result<client::OpenOptions> to_options(int flags, uint32_t mode) {
  client::OpenOptions options;
  const bool reads = (flags & SLUICE_O_READ) != 0;
  const bool writes = (flags & SLUICE_O_WRITE) != 0;
  if (!reads && !writes) {
    return sluice::fail(sluice::ErrorCode::kInvalidArgument,
                        "open needs SLUICE_O_READ, SLUICE_O_WRITE or both");
  }
  options.access = reads && writes ? client::AccessMode::kReadWrite
                   : writes        ? client::AccessMode::kWriteOnly
                                   : client::AccessMode::kReadOnly;
  options.create = (flags & SLUICE_O_CREATE) != 0;
  options.exclusive = (flags & SLUICE_O_EXCLUSIVE) != 0;
  options.truncate = (flags & SLUICE_O_TRUNCATE) != 0;
  options.mode = mode;
  return options;
}

Result<Extent> to_extent(uint64_t offset, size_t bytes) {
  if (offset > sluice::kMaxFileBytes || bytes > sluice::kMaxFileBytes - offset) {
    return sluice::fail(sluice::ErrorCode::kTooLarge, "the range ends beyond the largest file");
  }
  return Extent::at(Offset(offset), Length(bytes));
}

}  // namespace

int sluice_connect(const char* pool, sluice_pool** connected, sluice_error* error) {
  if (connected == nullptr) return no_null(error);
  client::Options options;
  if (pool != nullptr) {
    options.pool = pool;
  } else {
    auto from_environment = client::options_from_environment();
    if (!from_environment) return report(from_environment, error);
    options = std::move(*from_environment);
  }
  auto client = client::Client::connect(options);
  if (!client) return report(client, error);
  *connected = new sluice_pool{std::move(*client)};
  return 0;
}

void sluice_disconnect(sluice_pool* pool) {
  delete pool;
}

int sluice_open(sluice_pool* pool, const char* path, int flags, uint32_t mode, sluice_file** file,
                sluice_error* error) {
  if (pool == nullptr || path == nullptr || file == nullptr) return no_null(error);
  auto options = to_options(flags, mode);
  if (!options) return report(options, error);
  auto opened = pool->client->open(path, *options);
  if (!opened) return report(opened, error);
  *file = new sluice_file{std::move(*opened)};
  return 0;
}

int sluice_close(sluice_file* file, int commit, sluice_error* error) {
  if (file == nullptr) return no_null(error);
  const std::unique_ptr<sluice_file> gone(file);
  return report(gone->file->close(commit != 0), error);
}

int sluice_sync(sluice_file* file, sluice_error* error) {
  if (file == nullptr) return no_null(error);
  return report(file->file->sync(), error);
}

int sluice_write(sluice_file* file, uint64_t offset, const void* data, size_t bytes, sluice_error* error) {
  if (file == nullptr || (data == nullptr && bytes != 0)) return no_null(error);
  auto extent = to_extent(offset, bytes);
  if (!extent) return report(extent, error);
  const client::ConstPiece piece{data, bytes};
  return report(file->file->write({&*extent, 1}, {&piece, 1}), error);
}

int sluice_read(sluice_file* file, uint64_t offset, void* data, size_t bytes, size_t* got,
                sluice_error* error) {
  if (file == nullptr || got == nullptr || (data == nullptr && bytes != 0)) return no_null(error);
  auto extent = to_extent(offset, bytes);
  if (!extent) return report(extent, error);
  const client::Piece piece{data, bytes};
  auto read = file->file->read({&*extent, 1}, {&piece, 1});
  *got = read ? static_cast<size_t>(*read) : 0;
  return report(read, error);
}

int sluice_size(sluice_file* file, uint64_t* bytes, sluice_error* error) {
  if (file == nullptr || bytes == nullptr) return no_null(error);
  auto size = file->file->size();
  if (size) *bytes = *size;
  return report(size, error);
}

int sluice_resize(sluice_file* file, uint64_t bytes, sluice_error* error) {
  if (file == nullptr) return no_null(error);
  return report(file->file->resize(bytes), error);
}

int sluice_remove(sluice_pool* pool, const char* path, sluice_error* error) {
  if (pool == nullptr || path == nullptr) return no_null(error);
  return report(pool->client->remove(path), error);
}
