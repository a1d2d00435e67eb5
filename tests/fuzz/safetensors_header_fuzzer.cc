// Any bytes as the start of a safetensors file: parsing returns entries that lie inside the file, or an error.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "checkpoint/safetensors_reader.h"

namespace {

void check_entries(std::string_view header, uint64_t file_bytes) {
  const auto entries = gimbal::parse_safetensors_header(header, file_bytes, "fuzz.safetensors");
  if (!entries) {
    GIMBAL_CHECK(!entries.error().message.empty());
    return;
  }
  uint64_t end = file_bytes;
  if (!entries->empty()) end = entries->front().begin;
  for (const gimbal::SafetensorsEntry& entry : *entries) {
    GIMBAL_CHECK_EQ(entry.begin, end);
    end = entry.begin + entry.bytes;
  }
  GIMBAL_CHECK_EQ(end, file_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_entries(text, size);
  // The first two bytes as the size of a data section, the rest as the JSON text with a right length in front.
  if (size < 2) return 0;
  const uint64_t length = size - 2;
  std::string header;
  for (int i = 0; i < 8; ++i) header += static_cast<char>((length >> (8 * i)) & 0xff);
  header += text.substr(2);
  check_entries(header, header.size() + data[0] + 256 * uint64_t{data[1]});
  return 0;
}
