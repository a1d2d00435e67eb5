#include "checkpoint/shard_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "checkpoint/random_weights.h"
#include "tensor/data_type.h"

namespace gimbal {
namespace {

constexpr uint64_t kBufferBytes = uint64_t{64} << 20;
constexpr uint64_t kPartBytes = uint64_t{1} << 20;

class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path)
      : descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {}
  ~OutputFile() {
    if (descriptor >= 0) close(descriptor);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  const int descriptor;
};

Status write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(Error::failed(std::strerror(errno)));
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

}  // namespace

std::string make_safetensors_header(const std::vector<ShardTensor>& tensors) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  uint64_t at = 0;
  for (const ShardTensor& shard_tensor : tensors) {
    const PlannedTensor& tensor = shard_tensor.weight->tensors[shard_tensor.index];
    fmt::format_to(std::back_inserter(text), R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                   shard_tensor.stored_name, safetensors_name(tensor.data_types.front()), fmt::join(tensor.shape, ","),
                   at, at + tensor.bytes());
    at += tensor.bytes();
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string header;
  for (int i = 0; i < 8; ++i) header += static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return header + text;
}

ShardWriter::ShardWriter(ThreadTeam& team, uint64_t seed, std::function<void(uint64_t bytes)> on_written)
    : team_(team), seed_(seed), on_written_(std::move(on_written)), buffer_(kBufferBytes) {}

Status ShardWriter::write(const std::filesystem::path& path, const std::vector<ShardTensor>& tensors) {
  const OutputFile file(path);
  const auto explain = [&](std::string_view what) {
    return fail(Error::failed(fmt::format("{} cannot be written: {}.", path.string(), what)));
  };
  if (file.descriptor < 0) return explain(std::strerror(errno));
  const std::string header = make_safetensors_header(tensors);
  if (auto status = write_all(file.descriptor, std::as_bytes(std::span(header))); !status)
    return explain(status.error().message);
  for (const ShardTensor& tensor : tensors) {
    const uint64_t size = tensor.weight->tensors[tensor.index].bytes();
    for (uint64_t begin = 0; begin < size;) {
      const uint64_t bytes = std::min(size - begin, kPartBytes);
      if (used_ + bytes > buffer_.size()) {
        if (auto status = write_block(file.descriptor); !status) return explain(status.error().message);
      }
      parts_.push_back({&tensor, begin, used_, bytes});
      used_ += bytes;
      begin += bytes;
    }
  }
  if (auto status = write_block(file.descriptor); !status) return explain(status.error().message);
  if (fsync(file.descriptor) != 0) return explain(std::strerror(errno));
  return {};
}

Status ShardWriter::write_block(int descriptor) {
  team_.run(static_cast<int64_t>(parts_.size()), [&](int64_t task, int) {
    const Part& part = parts_[static_cast<size_t>(task)];
    fill_random_tensor(*part.tensor->weight, part.tensor->index, seed_, part.begin,
                       std::span(buffer_).subspan(part.buffer_offset, part.bytes));
  });
  const uint64_t bytes = std::exchange(used_, 0);
  parts_.clear();
  GIMBAL_RETURN_IF_ERROR(write_all(descriptor, std::span(buffer_).first(bytes)));
  on_written_(bytes);
  return {};
}

}  // namespace gimbal
