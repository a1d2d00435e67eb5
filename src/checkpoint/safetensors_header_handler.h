// The JSON text of a safetensors header, read event by event: duplicate keys are seen and no document is built.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors_reader.h"

namespace gimbal {

// Entries in the order of the text, with `begin` relative to the data section and `bytes` = end - begin. Checked: the
// structure, known element types, non-negative sizes, offsets in order and below 2^62. Not checked: sizes against
// shapes, names against each other. Blanks may follow the object. The error has no file name; the caller adds it.
Result<std::vector<SafetensorsEntry>> parse_safetensors_json(std::string_view text);

}  // namespace gimbal
