// ShardWriter: one safetensors file of random tensors, streamed through a fixed buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "parallel/weight_plan.h"

namespace gimbal {

// A tensor to write and the name it gets in the file.
struct ShardTensor {
  const PlannedWeight* weight = nullptr;
  size_t index = 0;
  std::string stored_name;
};

// The first bytes of the file: header length and JSON, padded so that the data start at a multiple of 8.
std::string make_safetensors_header(const std::vector<ShardTensor>& tensors);

// Reused for all shards of a checkpoint. Memory: one buffer, whatever the size of the tensors.
class ShardWriter {
 public:
  // `team` makes the values and outlives the writer; `on_written` is told the bytes after every block.
  ShardWriter(ThreadTeam& team, uint64_t seed, std::function<void(uint64_t bytes)> on_written);

  // Creates the file (it must not exist), writes and syncs it.
  Status write(const std::filesystem::path& path, const std::vector<ShardTensor>& tensors);

 private:
  struct Part {
    const ShardTensor* tensor;
    uint64_t begin;  // in the tensor
    uint64_t buffer_offset;
    uint64_t bytes;
  };
  Status write_block(int descriptor);

  ThreadTeam& team_;
  uint64_t seed_;
  std::function<void(uint64_t)> on_written_;
  std::vector<std::byte> buffer_;
  std::vector<Part> parts_;  // what the buffer will hold
  uint64_t used_ = 0;        // bytes of the buffer that parts_ take
};

}  // namespace gimbal
