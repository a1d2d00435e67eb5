#include <algorithm>

#include "ops/swiglu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/swiglu_cpu.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace gimbal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V swiglu_vector(D d, V gate, V up) {
  // exp is good only up to float's range; beyond it the quotient is zero to every digit anyway.
  const V exponential = hn::Exp(d, hn::Min(hn::Neg(gate), hn::Set(d, 88.0f)));
  return hn::Mul(hn::Div(gate, hn::Add(hn::Set(d, 1.0f), exponential)), up);
}

void swiglu_elements(const SwigluArgs& args) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= args.count; i += lanes) {
    hn::StoreU(swiglu_vector(d, hn::LoadU(d, args.gate + i), hn::LoadU(d, args.up + i)), d, args.y + i);
  }
  if (i < args.count) {  // the same vector code on a padded copy, so that an element's place does not matter
    HWY_ALIGN float gate[hn::MaxLanes(d)] = {};
    HWY_ALIGN float up[hn::MaxLanes(d)] = {};
    std::copy(args.gate + i, args.gate + args.count, gate);
    std::copy(args.up + i, args.up + args.count, up);
    hn::Store(swiglu_vector(d, hn::Load(d, gate), hn::Load(d, up)), d, gate);
    std::copy(gate, gate + (args.count - i), args.y + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace gimbal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gimbal {

HWY_EXPORT(swiglu_elements);

void swiglu_cpu(const SwigluArgs& args) { HWY_DYNAMIC_DISPATCH(swiglu_elements)(args); }

}  // namespace gimbal
#endif  // HWY_ONCE
