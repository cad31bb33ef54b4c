#include "protocol/message.h"

#include <flatbuffers/flatbuffers.h>

#include <cstring>

#include "base/checksum.h"

namespace sluice::protocol {
namespace {

constexpr size_t kMaxTextBytes = 16 * 1024;

tl::unexpected<Error> refuse(std::string why) {
  return fail(ErrorCode::kProtocol, std::move(why));
}

Result<> check_extents(const std::vector<wire::Extent>& extents) {
  if (extents.empty()) return refuse("a request without extents");
  if (extents.size() > kMaxExtentsPerRequest) return refuse("more extents than one request may have");
  uint64_t total = 0;
  for (const auto& e : extents) {
    const Extent extent{Offset(e.begin()), Offset(e.end())};
    if (!extent.valid() || extent.empty())
      return refuse("an extent that is empty, backwards or beyond the largest file");
    total += extent.length().value;
    if (total > kMaxRequestBytes) return refuse("more bulk bytes than one request may have");
  }
  return {};
}

Result<> check_path(const std::string& path) {
  if (auto normal = normalise_path(path); !normal) return refuse(normal.error().message);
  return {};
}

Result<> check_write(const wire::WriteT& write) {
  if (auto ok = check_extents(write.extents); !ok) return ok;
  const uint64_t total = total_bytes(write.extents);
  if (int{write.source != nullptr} + int{!write.inline_.empty()} + int{write.slab != nullptr} != 1)
    return refuse("a write needs its bytes inline, in a buffer or in a slab");
  if (!write.inline_.empty() && write.inline_.size() != total)
    return refuse("a write's inline bytes are not its extents'");
  if (write.source != nullptr && write.source->length() < total)
    return refuse("a write's buffer is shorter than its extents");
  if (write.locks.size() > kMaxLocksPerWrite) return refuse("a write under too many locks");
  if (std::find(write.locks.begin(), write.locks.end(), 0) != write.locks.end())
    return refuse("a write under a lock without a name");
  if (write.checksums.size() != (total + kChecksumBlockBytes - 1) / kChecksumBlockBytes) {
    return refuse("a write's checksums are not one for each block");
  }
  return {};
}

Result<> check_read(const wire::ReadT& read) {
  if (auto ok = check_extents(read.extents); !ok) return ok;
  const uint64_t total = total_bytes(read.extents);
  if (read.destination == nullptr && !read.mapped && total > kMaxInlineBytes)
    return refuse("a read of that size needs a buffer");
  if (read.destination != nullptr && read.destination->length() < total)
    return refuse("a read's buffer is shorter than its extents");
  if (read.ahead > kMaxAheadBytes || (read.ahead > 0 && (!read.mapped || read.extents.size() != 1)))
    return refuse("a read that asks for too much ahead, or ahead of several extents");
  if (read.release.size() > kMaxPinsPerMessage) return refuse("more pins than one message may release");
  return {};
}

Result<> check_lease(const wire::LeaseT& lease) {
  if (lease.need == 0 || lease.need > kMaxRequestBytes || lease.want < lease.need)
    return refuse("a lease of no bytes, or of more than one request may have");
  return {};
}

Result<> check_grants(const std::vector<uint64_t>& grants) {
  if (grants.size() > kMaxGrantsPerMessage) return refuse("more grants than one message may name");
  return {};
}

Result<> check_read_done(const wire::ReadDoneT& done) {
  if (done.pieces.size() > kMaxMappedPieces) return refuse("an answer of more pieces than it may have");
  if (done.ahead > kMaxAheadBytes || (done.ahead > 0 && done.pieces.empty()))
    return refuse("an answer with more ahead than there may be");
  uint64_t end = 0;
  uint64_t blocks = 0;
  const uint64_t told = done.bytes + done.ahead;
  for (const auto& piece : done.pieces) {
    const bool fits = piece.at() == end && piece.at() <= told && piece.length() > 0 &&
                      piece.length() <= told - piece.at() && piece.in_slab() <= piece.slab_length() &&
                      piece.length() <= piece.slab_length() - piece.in_slab();
    if (!fits) return refuse("a piece of an answer that does not fit in it");
    end = piece.at() + piece.length();
    blocks += whole_blocks(piece.in_slab(), piece.length(), piece.slab_length()).count;
  }
  if (!done.pieces.empty() && end != told) return refuse("an answer whose pieces do not add up to it");
  if (!done.pieces.empty() && (done.bytes > kMaxRequestBytes || blocks != done.checksums.size()))
    return refuse("an answer whose checksums are not those of its pieces' blocks");
  return {};
}

Result<> check_open(const wire::OpenT& open) {
  if (open.access > wire::Access::MAX) return refuse("an unknown access mode");
  if (open.object_class.size() > 64) return refuse("an object class of that length");
  return check_path(open.path);
}

Result<> check_recover(const wire::RecoverT& recover) {
  if (recover.access > wire::Access::MAX) return refuse("an unknown access mode");
  if (recover.locks.size() > kMaxHeldLocks) return refuse("more locks than one message may put back");
  for (const auto& lock : recover.locks) {
    const Extent extent{Offset(lock.extent().begin()), Offset(lock.extent().end())};
    if (!extent.valid() || extent.empty())
      return refuse("a held lock's extent is empty, backwards or beyond the largest file");
  }
  return {};
}

Result<> check_lock(const wire::LockT& lock) {
  if (lock.extents.empty()) return refuse("a lock request without extents");
  if (lock.extents.size() > kMaxExtentsPerRequest)
    return refuse("more extents than one lock request may have");
  for (const auto& e : lock.extents) {
    const Extent extent{Offset(e.begin()), Offset(e.end())};
    if (!extent.valid() || extent.empty())
      return refuse("a lock's extent is empty, backwards or beyond the largest file");
  }
  return {};
}

Result<> check_granted(const wire::GrantedT& granted) {
  if (granted.answers.empty() || granted.answers.size() > kMaxExtentsPerRequest) {
    return refuse("a grant without answers, or with more than a request may have");
  }
  for (const auto& answer : granted.answers) {
    const Extent extent{Offset(answer.extent().begin()), Offset(answer.extent().end())};
    if (!extent.valid() || extent.empty())
      return refuse("a granted extent is empty, backwards or beyond the largest file");
  }
  return {};
}

// What a client says.
Result<> check_request(const Body& body) {
  switch (body.type) {
    case wire::Body::NONE:
      return refuse("a message without a body");
    case wire::Body::Stat:
      return check_path(body.AsStat()->path);
    case wire::Body::List:
      if (body.AsList()->after.size() > kMaxPathBytes) return refuse("a path longer than the limit");
      return check_path(body.AsList()->path);
    case wire::Body::Remove:
      return check_path(body.AsRemove()->path);
    case wire::Body::AwaitDrained:
      return check_path(body.AsAwaitDrained()->path);
    case wire::Body::Explain:
      return check_path(body.AsExplain()->path);
    case wire::Body::Locks:
      return check_path(body.AsLocks()->path);
    case wire::Body::Open:
      return check_open(*body.AsOpen());
    case wire::Body::Recover:
      return check_recover(*body.AsRecover());
    case wire::Body::Write:
      return check_write(*body.AsWrite());
    case wire::Body::Read:
      return check_read(*body.AsRead());
    case wire::Body::Lease:
      return check_lease(*body.AsLease());
    case wire::Body::GiveBack:
      return check_grants(body.AsGiveBack()->grants);
    case wire::Body::Reclaim:
      return check_grants(body.AsReclaim()->grants);
    case wire::Body::Release:
      if (body.AsRelease()->pins.size() > kMaxPinsPerMessage)
        return refuse("more pins than one message may release");
      return {};
    case wire::Body::Size:
      if (body.AsSize()->beyond > kMaxFileBytes) return refuse("a size beyond the largest file");
      return {};
    case wire::Body::Glimpse:
      if (body.AsGlimpse()->beyond > kMaxFileBytes) return refuse("a size beyond the largest file");
      return {};
    case wire::Body::Resize:
      if (body.AsResize()->size > kMaxFileBytes) return refuse("a size beyond the largest file");
      return {};
    case wire::Body::Shape:
      if (body.AsShape()->reason.size() > kMaxReasonBytes) return refuse("a reason longer than the limit");
      return {};
    case wire::Body::Counter:
      if (body.AsCounter()->op > wire::CounterOp::MAX) return refuse("an unknown counter operation");
      return {};
    case wire::Body::Lock:
      return check_lock(*body.AsLock());
    case wire::Body::Unlock:
      if (body.AsUnlock()->locks.size() > kMaxUnlocks)
        return refuse("more locks than one message may give back");
      return {};
    default:
      return {};
  }
}

// What a service says.
Result<> check_answer(const Body& body) {
  switch (body.type) {
    case wire::Body::LocksShown:
      if (body.AsLocksShown()->locks.size() > kMaxLocksShown)
        return refuse("more locks than are shown at a time");
      return {};
    case wire::Body::Opened:
      if (body.AsOpened()->info == nullptr) return refuse("an opened file without its facts");
      return {};
    case wire::Body::ReadDone:
      return check_read_done(*body.AsReadDone());
    case wire::Body::Granted:
      return check_granted(*body.AsGranted());
    case wire::Body::Revoke:
      if (body.AsRevoke()->more.size() > kMaxUnlocks)
        return refuse("more locks than one message may ask back");
      return {};
    case wire::Body::Listed:
      for (const auto& file : body.AsListed()->files) {
        if (file == nullptr) return refuse("a list with a hole");
      }
      return {};
    default:
      return {};
  }
}

// What the Verifier cannot know.
Result<> check_meaning(const Body& body) {
  if (auto ok = check_request(body); !ok) return ok;
  return check_answer(body);
}

}  // namespace

std::vector<std::byte> encode_message(uint64_t id, Body body) {
  wire::MessageT message;
  message.id = id;
  message.body = std::move(body);
  flatbuffers::FlatBufferBuilder builder(1024);
  builder.Finish(wire::Message::Pack(builder, &message), wire::MessageIdentifier());
  const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {data, data + builder.GetSize()};
}

std::vector<std::byte> encode_error(uint64_t id, const Error& error) {
  wire::FailedT failed;
  failed.code = static_cast<uint16_t>(error.code);
  failed.message = error.message.substr(0, kMaxTextBytes);
  failed.retryable = error.retryable;
  failed.data_loss = error.data_loss;
  failed.outcome_unknown = error.outcome_unknown;
  return encode(id, std::move(failed));
}

namespace {

// The Verifier keeps a hostile vector inside the buffer, but not its elements on their boundaries, where they
// are larger than the vector's length.
template <class Struct>
bool aligned(const flatbuffers::Vector<const Struct*>* structs) {
  return structs == nullptr || reinterpret_cast<uintptr_t>(structs->Data()) % alignof(Struct) == 0;
}

bool aligned(const flatbuffers::Vector<uint64_t>* numbers) {
  return numbers == nullptr || reinterpret_cast<uintptr_t>(numbers->Data()) % alignof(uint64_t) == 0;
}

template <class Struct>
bool aligned(const Struct* one) {
  return reinterpret_cast<uintptr_t>(one) % alignof(Struct) == 0;
}

bool elements_aligned(const wire::Message& message) {
  if (const auto* write = message.body_as_Write())
    return aligned(write->extents()) && aligned(write->source()) && aligned(write->slab()) &&
           aligned(write->locks());
  if (const auto* read = message.body_as_Read())
    return aligned(read->extents()) && aligned(read->destination()) && aligned(read->release());
  if (const auto* release = message.body_as_Release()) return aligned(release->pins());
  if (const auto* back = message.body_as_GiveBack()) return aligned(back->grants());
  if (const auto* reclaim = message.body_as_Reclaim()) return aligned(reclaim->grants());
  if (const auto* unlock = message.body_as_Unlock()) return aligned(unlock->locks());
  if (const auto* revoke = message.body_as_Revoke()) return aligned(revoke->more());
  if (const auto* done = message.body_as_ReadDone()) return aligned(done->pieces());
  if (const auto* lock = message.body_as_Lock()) return aligned(lock->extents());
  if (const auto* shown = message.body_as_LocksShown()) return aligned(shown->locks());
  if (const auto* recover = message.body_as_Recover()) return aligned(recover->locks());
  if (const auto* granted = message.body_as_Granted()) return aligned(granted->answers());
  return true;
}

}  // namespace

Result<std::unique_ptr<wire::MessageT>> decode(std::span<const std::byte> bytes) {
  std::vector<uint64_t> moved;  // a message that does not begin on a boundary, moved to one
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(uint64_t) != 0) {
    moved.resize((bytes.size() + sizeof(uint64_t) - 1) / sizeof(uint64_t));
    std::memcpy(moved.data(), bytes.data(), bytes.size());
    bytes = std::as_bytes(std::span(moved)).first(bytes.size());
  }
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size(), /*max_depth=*/16, /*max_tables=*/1024);
  if (bytes.size() < 8 || !wire::VerifyMessageBuffer(verifier))
    return refuse("a message that is not well formed");
  const auto* message = wire::GetMessage(data);
  // An unknown type passes the Verifier (it may come from a newer version) but cannot be unpacked.
  if (message->body_type() > wire::Body::MAX || message->body() == nullptr)
    return refuse("a message of unknown type");
  if (!elements_aligned(*message)) return refuse("a message whose parts do not lie where they may");
  std::unique_ptr<wire::MessageT> unpacked(message->UnPack());
  if (auto ok = check_meaning(unpacked->body); !ok) return fail(ok.error());
  return unpacked;
}

Error error_of(const wire::FailedT& failed) {
  Error error;
  error.code = failed.code >= 1 && failed.code <= kLastErrorCode ? static_cast<ErrorCode>(failed.code)
                                                                 : ErrorCode::kInternal;
  error.message = failed.message;
  error.retryable = failed.retryable;
  error.data_loss = failed.data_loss;
  error.outcome_unknown = failed.outcome_unknown;
  return error;
}

BlockRange whole_blocks(uint64_t in_slab, uint64_t length, uint64_t slab_length) {
  const uint64_t end = in_slab + length;
  const uint64_t first = (in_slab + kChecksumBlockBytes - 1) / kChecksumBlockBytes;
  const uint64_t last =
      end == slab_length ? (end + kChecksumBlockBytes - 1) / kChecksumBlockBytes : end / kChecksumBlockBytes;
  return {first, last > first ? last - first : 0};
}

uint64_t total_bytes(const std::vector<wire::Extent>& extents) {
  uint64_t total = 0;
  for (const auto& extent : extents) total += extent.end() - extent.begin();
  return total;
}

std::vector<Extent> extents_of(const std::vector<wire::Extent>& extents) {
  std::vector<Extent> plain;
  plain.reserve(extents.size());
  for (const auto& extent : extents) plain.push_back({Offset(extent.begin()), Offset(extent.end())});
  return plain;
}

std::vector<wire::Extent> to_wire(std::span<const Extent> extents) {
  std::vector<wire::Extent> wire_extents;
  wire_extents.reserve(extents.size());
  for (const auto& extent : extents) wire_extents.emplace_back(extent.begin.value, extent.end.value);
  return wire_extents;
}

Result<std::string> normalise_path(std::string_view path) {
  if (path.empty()) return fail(ErrorCode::kInvalidArgument, "an empty path");
  if (path.size() > kMaxPathBytes) {
    return fail(ErrorCode::kInvalidArgument,
                "a path longer than " + std::to_string(kMaxPathBytes) + " bytes");
  }
  if (path.find('\0') != std::string_view::npos)
    return fail(ErrorCode::kInvalidArgument, "a path with a NUL byte");
  std::string normal;
  for (size_t at = 0; at < path.size();) {
    const size_t slash = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, slash - at);
    if (part == "..") return fail(ErrorCode::kInvalidArgument, "a path with '..': " + std::string(path));
    if (!part.empty() && part != ".") normal.append("/").append(part);
    at = slash + 1;
  }
  return normal.empty() ? std::string("/") : normal;
}

}  // namespace sluice::protocol
