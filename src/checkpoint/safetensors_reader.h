// safetensors: 8 bytes little-endian header length, JSON header, then tensor data.
// https://github.com/huggingface/safetensors
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/data_type.h"

namespace gimbal {

struct SafetensorsEntry {
  std::string name;
  DataType data_type = DataType::kFloat32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // offset in the file (not in the data section)
  uint64_t bytes = 0;
};

// Parses and validates a header. `header` is the start of the file (at least the 8 length bytes and the JSON text),
// `file_bytes` the size of the whole file. Refused: length beyond the file, bad JSON, duplicate names, unknown element
// type, negative or overflowing shapes, sizes that disagree with shape and type, overlapping or out-of-range offsets,
// gaps, bytes behind the last tensor. `path` is used in messages only. Entries are ordered by offset.
Result<std::vector<SafetensorsEntry>> parse_safetensors_header(std::string_view header, uint64_t file_bytes,
                                                               std::string_view path);

// Reads only the header of a file. Git LFS pointers are named as such.
Result<std::vector<SafetensorsEntry>> read_safetensors_header(const std::filesystem::path& path);

}  // namespace gimbal
