#include "quantization/weight_format.h"

namespace gimbal {

std::string_view name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return "float32";
    case WeightFormat::kFloat16:
      return "float16";
    case WeightFormat::kBFloat16:
      return "bfloat16";
    case WeightFormat::kInt4Group:
      return "int4 group";
    case WeightFormat::kFloat8Block:
      return "float8 block";
  }
  return "unknown";
}

}  // namespace gimbal
