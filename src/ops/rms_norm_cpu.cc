#include <cmath>

#include "ops/rms_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rms_norm_cpu.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gimbal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE void rms_norm_row(const RmsNormArgs& args, int64_t row) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* x = args.x + row * args.x_stride;
  float* y = args.y + row * args.y_stride;
  auto squares = hn::Zero(d);
  int64_t column = 0;
  for (; column + lanes <= args.num_columns; column += lanes) {
    const auto v = hn::LoadU(d, x + column);
    squares = hn::MulAdd(v, v, squares);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, squares));
  for (; column < args.num_columns; ++column) sum += x[column] * x[column];
  const float mean = sum / static_cast<float>(args.num_columns);
  const float scale = 1.0f / std::sqrt(mean + static_cast<float>(args.epsilon));
  const auto scales = hn::Set(d, scale);
  column = 0;
  for (; column + lanes <= args.num_columns; column += lanes) {
    const auto normed = hn::Mul(hn::LoadU(d, x + column), scales);
    hn::StoreU(hn::Mul(normed, hn::LoadU(d, args.weight + column)), d, y + column);
  }
  for (; column < args.num_columns; ++column) y[column] = x[column] * scale * args.weight[column];
}

void rms_norm_rows(const RmsNormArgs& args) {
  for (int64_t row = 0; row < args.num_rows; ++row) rms_norm_row(args, row);
}

}  // namespace HWY_NAMESPACE
}  // namespace gimbal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gimbal {

HWY_EXPORT(rms_norm_rows);

void rms_norm_cpu(const RmsNormArgs& args) { HWY_DYNAMIC_DISPATCH(rms_norm_rows)(args); }

}  // namespace gimbal
#endif  // HWY_ONCE
