#include "adio/abi.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/hints.h"
#include "base/log.h"
#include "base/sentence.h"
#include "client/client.h"

// The C table over the client library. Translates and forwards; keeps nothing but the connection of the files
// it opened.

using sluice::Error;
using sluice::ErrorCode;
using sluice::Extent;
using sluice::HintList;
using sluice::Offset;
using sluice::Result;
using sluice::client::Client;
using sluice::client::File;

struct SluiceFile {
  std::unique_ptr<File> file;
};

static_assert(SLUICE_ABORTED == static_cast<int>(ErrorCode::kAborted),
              "SluiceCode numbers are those of ErrorCode");
static_assert(SLUICE_SENTENCE_BYTES < sizeof SluiceError::message);
static_assert(SLUICE_HANDLE_BYTES > sluice::client::kMaxHandleBytes);

namespace {

int fail_as(int32_t code, const std::string& message, SluiceError* error) {
  error->code = code;
  const std::string fitted = sluice::fit_sentence(message, SLUICE_SENTENCE_BYTES);
  std::memcpy(error->message, fitted.c_str(), fitted.size() + 1);
  return -1;
}

int fail_with(const Error& why, SluiceError* error) {
  return fail_as(static_cast<int32_t>(why.code), why.message, error);
}

template <class T>
int answer(const Result<T>& result, SluiceError* error) {
  return result ? 0 : fail_with(result.error(), error);
}

int put_text(const std::string& text, char* into, size_t capacity, SluiceError* error) {
  if (text.size() >= capacity)
    return fail_as(SLUICE_TOO_LARGE, "a text does not fit its place at the ROMIO border", error);
  std::memcpy(into, text.c_str(), text.size() + 1);
  return 0;
}

// Later ones win: what the environment says counts over what the program says.
constexpr std::array kVariables = {"MPICH_MPIIO_HINTS", "SLUICE_HINTS"};

// The sentence about a hint that MPI does not take, if there is one. `where` gave the list.
std::string find_too_long(const HintList& list, const std::string& where) {
  constexpr size_t kShown = 40;
  for (const auto& [name, value] : list) {
    if (name.size() > SLUICE_HINT_NAME_BYTES) {
      return where + " has a hint whose name, " + name.substr(0, kShown) + "..., has " +
             std::to_string(name.size()) + " characters; MPI takes " +
             std::to_string(SLUICE_HINT_NAME_BYTES) + ": correct or remove it";
    }
    if (value.size() > SLUICE_HINT_VALUE_BYTES) {
      return where + " gives the hint " + name + " a value of " + std::to_string(value.size()) +
             " characters; MPI takes " + std::to_string(SLUICE_HINT_VALUE_BYTES) + ": shorten it";
    }
  }
  return {};
}

void tell_once(const std::string& sentence) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::lock_guard lock(mutex);
  if (told.insert(sentence).second) sluice::log::warn("{}", sentence);
}

int resolve(const char* path, bool tell, const SluiceHint* hints, size_t count, HintList& resolved,
            SluiceError* error) {
  std::vector<HintList> lists(1);
  for (size_t i = 0; i < count; ++i) lists[0].emplace_back(hints[i].name, hints[i].value);
  for (const char* variable : kVariables) {
    const char* rules = std::getenv(variable);
    auto found = sluice::hints_for_path(variable, rules != nullptr ? rules : "", path);
    if (!found) return fail_as(SLUICE_HINT_VALUE, found.error().message, error);
    lists.push_back(std::move(*found));
  }
  for (size_t i = 0; i < lists.size(); ++i) {
    const auto sentence = find_too_long(lists[i], i == 0 ? "the program" : kVariables.at(i - 1));
    if (!sentence.empty()) return fail_as(SLUICE_HINT_VALUE, sentence, error);
  }
  for (const HintList& list : lists) {
    if (auto unknown = sluice::find_unknown_hint(list))
      return fail_as(SLUICE_HINT_NAME, unknown->message, error);
  }
  auto all = sluice::resolve_hints(lists);
  if (!all) return fail_as(SLUICE_HINT_VALUE, all.error().message, error);
  for (const HintList& list : lists) {
    for (const auto& sentence : sluice::unusable_advice(list))
      if (tell) tell_once(sentence);
  }
  resolved = std::move(*all);
  return 0;
}

// One connection for all files of this process.
Result<std::shared_ptr<Client>> connection() {
  auto options = sluice::client::options_from_environment();
  if (!options) return sluice::fail(options.error());
  return Client::shared(*options);
}

int gather_hints(const char* path, int tell, const SluiceHint* hints, size_t count, char* text,
                 size_t capacity, size_t* bytes, SluiceError* error) {
  HintList resolved;
  if (resolve(path, tell != 0, hints, count, resolved, error) != 0) return -1;
  std::string packed;
  for (const auto& [name, value] : resolved) {
    packed.append(name.c_str(), name.size() + 1);
    packed.append(value.c_str(), value.size() + 1);
  }
  if (packed.size() > capacity)
    return fail_as(SLUICE_TOO_LARGE,
                   "the hints of " + std::string(path) + " are too long; shorten those of the environment",
                   error);
  std::memcpy(text, packed.data(), packed.size());
  *bytes = packed.size();
  return 0;
}

int open_file(const char* path, uint32_t flags, uint32_t mode, const SluiceHint* hints, size_t count,
              SluiceFile** file, SluiceError* error) {
  HintList resolved;
  if (resolve(path, /*tell=*/false, hints, count, resolved, error) != 0) return -1;
  const sluice::HintSettings said = sluice::settings_of(resolved);
  auto client = connection();
  if (!client) return fail_with(client.error(), error);
  sluice::client::OpenOptions options;
  const bool reads = (flags & SLUICE_READ) != 0;
  const bool writes = (flags & SLUICE_WRITE) != 0;
  options.access = !writes  ? sluice::client::AccessMode::kReadOnly
                   : !reads ? sluice::client::AccessMode::kWriteOnly
                            : sluice::client::AccessMode::kReadWrite;
  options.create = (flags & SLUICE_CREATE) != 0;
  options.exclusive = (flags & SLUICE_EXCLUSIVE) != 0;
  options.mode = mode;
  options.object_class = said.object_class;
  options.chunk_bytes = said.chunk_bytes;
  options.striping_factor = static_cast<uint32_t>(said.striping_factor);
  options.lock_mode = said.lock_mode;
  options.lockahead_extents = static_cast<uint32_t>(said.lockahead_extents);
  auto opened = (*client)->open(path, options);
  if (!opened) return fail_with(opened.error(), error);
  *file = new SluiceFile{std::move(*opened)};
  return 0;
}

int share(SluiceFile* file, char* handle, size_t capacity, SluiceError* error) {
  return put_text(file->file->share(), handle, capacity, error);
}

int attach(const char* handle, SluiceFile** file, SluiceError* error) {
  auto attached = sluice::client::attach_shared(handle);
  if (!attached) return fail_with(attached.error(), error);
  *file = new SluiceFile{std::move(*attached)};
  return 0;
}

int effective_hints(SluiceFile* file, char* text, size_t capacity, SluiceError* error) {
  std::string lines;
  for (const auto& [name, value] : file->file->effective_hints()) lines += name + "=" + value + "\n";
  return put_text(lines, text, capacity, error);
}

std::vector<Extent> to_extents(const SluiceExtent* extents, size_t count) {
  std::vector<Extent> list;
  list.reserve(count);
  for (size_t i = 0; i < count; ++i) list.push_back({Offset(extents[i].begin), Offset(extents[i].end)});
  return list;
}

int write_file(SluiceFile* file, const SluiceExtent* extents, size_t extent_count, const SluicePiece* pieces,
               size_t piece_count, uint64_t* done, SluiceError* error) {
  std::vector<sluice::client::ConstPiece> memory;
  memory.reserve(piece_count);
  for (size_t i = 0; i < piece_count; ++i) memory.push_back({pieces[i].data, pieces[i].bytes});
  const auto result = file->file->write(to_extents(extents, extent_count), memory);
  *done = result ? *result : 0;
  return answer(result, error);
}

int read_file(SluiceFile* file, const SluiceExtent* extents, size_t extent_count, const SluicePiece* pieces,
              size_t piece_count, uint64_t* done, SluiceError* error) {
  std::vector<sluice::client::Piece> memory;
  memory.reserve(piece_count);
  for (size_t i = 0; i < piece_count; ++i) memory.push_back({pieces[i].data, pieces[i].bytes});
  const auto result = file->file->read(to_extents(extents, extent_count), memory);
  *done = result ? *result : 0;
  return answer(result, error);
}

int size_of(SluiceFile* file, uint64_t* bytes, SluiceError* error) {
  const auto result = file->file->size();
  if (result) *bytes = *result;
  return answer(result, error);
}

int resize(SluiceFile* file, uint64_t bytes, SluiceError* error) {
  return answer(file->file->resize(bytes), error);
}

int preallocate(SluiceFile* file, uint64_t bytes, SluiceError* error) {
  return answer(file->file->preallocate(bytes), error);
}

int shape(SluiceFile* file, uint64_t chunk_bytes, const char* reason, uint64_t* effective,
          SluiceError* error) {
  const auto result = file->file->shape(chunk_bytes, reason);
  if (result) *effective = *result;
  return answer(result, error);
}

int flush(SluiceFile* file, SluiceError* error) {
  return answer(file->file->flush(), error);
}

int sync_file(SluiceFile* file, SluiceError* error) {
  return answer(file->file->sync(), error);
}

int close_file(SluiceFile* file, int commit, SluiceError* error) {
  const std::unique_ptr<SluiceFile> owned(file);
  return answer(owned->file->close(commit != 0), error);
}

int remove_file(const char* path, SluiceError* error) {
  auto client = connection();
  if (!client) return fail_with(client.error(), error);
  return answer((*client)->remove(path), error);
}

int counter_add(SluiceFile* file, int64_t delta, int64_t* before, SluiceError* error) {
  const auto result = file->file->fetch_and_add(delta);
  if (result) *before = *result;
  return answer(result, error);
}

int counter_set(SluiceFile* file, int64_t value, int64_t* before, SluiceError* error) {
  const auto result = file->file->exchange_counter(value);
  if (result) *before = *result;
  return answer(result, error);
}

void count_plan(SluiceFile* file, int two_phase, uint64_t exchanged_bytes) {
  file->file->count_plan(two_phase != 0, exchanged_bytes);
}

int lock_range(SluiceFile* file, SluiceExtent extent, int exclusive, uint64_t* lock, SluiceError* error) {
  const auto result = file->file->lock({Offset(extent.begin), Offset(extent.end)}, exclusive != 0);
  if (result) *lock = *result;
  return answer(result, error);
}

int unlock_range(SluiceFile* file, uint64_t lock, SluiceError* error) {
  return answer(file->file->unlock(lock), error);
}

constexpr SluiceAbi kAbi = {
    .version = SLUICE_ABI_VERSION,
    .gather_hints = gather_hints,
    .open = open_file,
    .share = share,
    .attach = attach,
    .effective_hints = effective_hints,
    .write = write_file,
    .read = read_file,
    .size = size_of,
    .resize = resize,
    .preallocate = preallocate,
    .shape = shape,
    .flush = flush,
    .sync = sync_file,
    .close = close_file,
    .remove = remove_file,
    .counter_add = counter_add,
    .counter_set = counter_set,
    .count_plan = count_plan,
    .lock = lock_range,
    .unlock = unlock_range,
    .disconnect = Client::end_shared,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const SluiceAbi* sluice_adio_abi(uint32_t version) {
  if (version != SLUICE_ABI_VERSION) return nullptr;
  Client::keep_shared();
  return &kAbi;
}
