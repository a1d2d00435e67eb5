#include "checkpoint/safetensors_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/byte_size.h"
#include "base/git_lfs_pointer.h"
#include "checkpoint/open_file.h"
#include "checkpoint/safetensors_header_handler.h"

namespace gimbal {
namespace {

constexpr uint64_t kLengthBytes = 8;
// The limit that the format's own library keeps.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

uint64_t read_header_length(std::string_view head) {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= uint64_t{static_cast<uint8_t>(head[i])} << (8 * i);
  return length;
}

tl::unexpected<Error> refuse(std::string_view path, std::string_view reason) {
  return fail(Error::invalid(fmt::format("{}: {}", path, reason)));
}

// The length field, once it is known to be plausible.
Result<uint64_t> checked_header_length(std::string_view head, uint64_t file_bytes, std::string_view path) {
  if (const auto pointer = parse_git_lfs_pointer(head)) {
    return fail(Error::invalid(describe_git_lfs_pointer(path, file_bytes, *pointer)));
  }
  if (file_bytes < kLengthBytes || head.size() < kLengthBytes) {
    return refuse(path, fmt::format("{} bytes are too few for a safetensors file, which starts with 8 bytes of header "
                                    "length. The download was cut off; fetch the file again.",
                                    file_bytes));
  }
  const uint64_t length = read_header_length(head);
  if (length > file_bytes - kLengthBytes) {
    return refuse(path, fmt::format("the header length field says {} bytes, but the file has {} bytes in all. The file "
                                    "is cut off or is not safetensors; fetch it again.",
                                    length, file_bytes));
  }
  if (length > kMaxHeaderBytes) {
    return refuse(path, fmt::format("the header length field says {} bytes, more than the {} that safetensors allows. "
                                    "The file is not safetensors or is damaged.",
                                    length, kMaxHeaderBytes));
  }
  return length;
}

// Bytes that shape and type ask for, or nullopt when they exceed 64 bits.
std::optional<uint64_t> bytes_of(DataType type, const std::vector<int64_t>& shape) {
  uint64_t bytes = static_cast<uint64_t>(size_of(type));
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return std::nullopt;
  }
  return bytes;
}

Status check_one(const SafetensorsEntry& entry, uint64_t data_begin, uint64_t data_bytes, std::string_view path) {
  const std::optional<uint64_t> bytes = bytes_of(entry.data_type, entry.shape);
  if (!bytes) {
    return refuse(path,
                  fmt::format("tensor {} has shape {}, whose size does not fit in 64 bits.", entry.name, entry.shape));
  }
  const uint64_t begin = entry.begin - data_begin;
  if (*bytes != entry.bytes) {
    return refuse(
        path, fmt::format("tensor {} of type {} and shape {} takes {} bytes, but its data_offsets [{}, {}] hold {}.",
                          entry.name, safetensors_name(entry.data_type), entry.shape, *bytes, begin,
                          begin + entry.bytes, entry.bytes));
  }
  if (begin + entry.bytes > data_bytes) {
    return refuse(path,
                  fmt::format("tensor {} ends at byte {} of the data section, which has only {} bytes. The file is "
                              "truncated ({} bytes are missing at least); fetch it again.",
                              entry.name, begin + entry.bytes, data_bytes, begin + entry.bytes - data_bytes));
  }
  return {};
}

Status check_coverage(const std::vector<SafetensorsEntry>& entries, uint64_t data_begin, uint64_t file_bytes,
                      std::string_view path) {
  uint64_t end = data_begin;
  std::string_view last = "the header";
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < end) {
      return refuse(
          path, fmt::format("tensors {} and {} overlap by {} bytes; every byte may belong to one tensor only.", last,
                            entry.name, end - entry.begin));
    }
    if (entry.begin > end) {
      return refuse(path,
                    fmt::format("{} bytes between {} and tensor {} belong to no tensor; safetensors allows no gaps.",
                                entry.begin - end, last, entry.name));
    }
    end = entry.begin + entry.bytes;
    last = entry.name;
  }
  if (end != file_bytes) {
    return refuse(path,
                  fmt::format("{} bytes follow {}: the header describes a file of {} bytes, found {}. The file is "
                              "too long or belongs to another header.",
                              file_bytes - end, last, end, file_bytes));
  }
  return {};
}

Status check_names(const std::vector<SafetensorsEntry>& entries, std::string_view path) {
  std::unordered_set<std::string_view> names;
  names.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) {
    if (!names.insert(entry.name).second) {
      return refuse(
          path, fmt::format("tensor {} is named twice in the header; which one is meant cannot be known.", entry.name));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<SafetensorsEntry>> parse_safetensors_header(std::string_view header, uint64_t file_bytes,
                                                               std::string_view path) {
  GIMBAL_ASSIGN_OR_RETURN(const uint64_t length, checked_header_length(header, file_bytes, path));
  if (header.size() - kLengthBytes < length) {
    return refuse(
        path, fmt::format("the header has {} bytes, of which {} were given.", length, header.size() - kLengthBytes));
  }
  auto parsed = parse_safetensors_json(header.substr(kLengthBytes, length));
  if (!parsed) return refuse(path, parsed.error().message);
  std::vector<SafetensorsEntry> entries = std::move(*parsed);
  const uint64_t data_begin = kLengthBytes + length;
  GIMBAL_RETURN_IF_ERROR(check_names(entries, path));
  for (SafetensorsEntry& entry : entries) {
    entry.begin += data_begin;  // cannot overflow: both are below 2^63
    GIMBAL_RETURN_IF_ERROR(check_one(entry, data_begin, file_bytes - data_begin, path));
  }
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.bytes != b.bytes ? a.bytes < b.bytes : a.name < b.name;
  });
  GIMBAL_RETURN_IF_ERROR(check_coverage(entries, data_begin, file_bytes, path));
  return entries;
}

Result<std::vector<SafetensorsEntry>> read_safetensors_header(const std::filesystem::path& path) {
  GIMBAL_ASSIGN_OR_RETURN(const OpenFile file, OpenFile::open(path));
  constexpr uint64_t kHeadBytes = 512;  // enough to recognize a Git LFS pointer
  std::string text(std::min(file.size(), kHeadBytes), '\0');
  GIMBAL_RETURN_IF_ERROR(file.read_at(0, text));
  GIMBAL_ASSIGN_OR_RETURN(const uint64_t length, checked_header_length(text, file.size(), path.string()));
  text.resize(kLengthBytes + length);
  GIMBAL_RETURN_IF_ERROR(file.read_at(0, text));
  return parse_safetensors_header(text, file.size(), path.string());
}

}  // namespace gimbal
