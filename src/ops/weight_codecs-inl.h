// Codecs: one per weight format, each widens 32 consecutive weights of one output to float vectors.
//
// Included once per instruction set by Highway, hence the toggling guard. A codec has
//   decode(output, column, vectors)       columns [column, column + 32) all inside the row
//   decode_tail(output, column, vectors)  fewer than 32 columns left; the rest of the vectors holds any finite values
//   kSplitsScales                         true where one vector may need several scales
#if defined(GIMBAL_OPS_WEIGHT_CODECS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GIMBAL_OPS_WEIGHT_CODECS_INL_H_
#undef GIMBAL_OPS_WEIGHT_CODECS_INL_H_
#else
#define GIMBAL_OPS_WEIGHT_CODECS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/highway.h>

#include "quantization/weight_matrix.h"

HWY_BEFORE_NAMESPACE();
namespace gimbal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;
static_assert(!HWY_HAVE_SCALABLE, "vectors are kept in arrays here");

inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(Floats()));
inline constexpr int kChunk = 32;
inline constexpr int kVectorsPerChunk = kChunk / kLanes;
static_assert(kLanes <= 16, "a vector must not span two int4 groups of 16");

// Codecs whose elements stand one after the other: widening a padded copy of the last elements serves as the tail.
template <typename Derived, typename Element>
class ElementwiseCodec {
 public:
  static constexpr bool kSplitsScales = false;
  HWY_INLINE void decode_tail(int64_t output, int64_t column, Vector* vectors) const {
    Element padded[kChunk] = {};
    const Element* elements = data_ + output * columns_ + column;
    std::copy(elements, elements + (columns_ - column), padded);
    static_cast<const Derived*>(this)->widen(padded, output, column, vectors);
  }
  HWY_INLINE void decode(int64_t output, int64_t column, Vector* vectors) const {
    static_cast<const Derived*>(this)->widen(data_ + output * columns_ + column, output, column, vectors);
  }

 protected:
  explicit ElementwiseCodec(const WeightMatrix& weight)
      : data_(static_cast<const Element*>(weight.data)), columns_(weight.columns) {}
  const Element* data_;
  int64_t columns_;
};

class Float32Codec : public ElementwiseCodec<Float32Codec, float> {
 public:
  explicit Float32Codec(const WeightMatrix& weight) : ElementwiseCodec(weight) {}
  HWY_INLINE void widen(const float* elements, int64_t, int64_t, Vector* vectors) const {
    for (int v = 0; v < kVectorsPerChunk; ++v) vectors[v] = hn::LoadU(Floats(), elements + v * kLanes);
  }
};

class BFloat16Codec : public ElementwiseCodec<BFloat16Codec, uint16_t> {
 public:
  explicit BFloat16Codec(const WeightMatrix& weight) : ElementwiseCodec(weight) {}
  HWY_INLINE void widen(const uint16_t* elements, int64_t, int64_t, Vector* vectors) const {
    const Floats d;
    const hn::RebindToUnsigned<Floats> d32;
    const hn::Rebind<uint16_t, Floats> d16;
    for (int v = 0; v < kVectorsPerChunk; ++v) {
      const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, elements + v * kLanes));
      vectors[v] = hn::BitCast(d, hn::ShiftLeft<16>(bits));
    }
  }
};

class Float16Codec : public ElementwiseCodec<Float16Codec, uint16_t> {
 public:
  explicit Float16Codec(const WeightMatrix& weight) : ElementwiseCodec(weight) {}
  HWY_INLINE void widen(const uint16_t* elements, int64_t, int64_t, Vector* vectors) const {
    const Floats d;
    const hn::Rebind<uint16_t, Floats> d16;
    const hn::Rebind<hwy::float16_t, Floats> half;
    for (int v = 0; v < kVectorsPerChunk; ++v) {
      vectors[v] = hn::PromoteTo(d, hn::BitCast(half, hn::LoadU(d16, elements + v * kLanes)));
    }
  }
};

// A slice may begin anywhere inside a group or block, and then a vector may need two scales. The codecs of these
// formats come in two kinds, chosen once per matrix, so that matrices with one scale per vector pay nothing for it.
//
// Writes the scale of each of kChunk columns; `column` counts from where the first group begins, scale_of(group) gives
// its scale.
template <typename ScaleOf>
HWY_INLINE void spread_scales(int64_t column, int64_t group_size, const ScaleOf& scale_of, float* scales) {
  int64_t group = column / group_size;
  int64_t end = (group + 1) * group_size - column;
  for (int64_t j = 0; j < kChunk; end += group_size, ++group) {
    const float scale = scale_of(group);
    for (; j < std::min<int64_t>(end, kChunk); ++j) scales[j] = scale;
  }
}

template <bool kSplit>
class Float8BlockCodec : public ElementwiseCodec<Float8BlockCodec<kSplit>, uint8_t> {
 public:
  static constexpr bool kSplitsScales = kSplit;
  explicit Float8BlockCodec(const WeightMatrix& weight)
      : ElementwiseCodec<Float8BlockCodec, uint8_t>(weight),
        scales_(static_cast<const float*>(weight.scales)),
        blocks_per_row_(scales_per_row(weight)),
        first_row_(weight.first_row_in_block),
        first_column_(weight.first_column_in_group) {}
  HWY_INLINE void widen(const uint8_t* elements, int64_t output, int64_t column, Vector* vectors) const {
    const Floats d;
    const hn::RebindToUnsigned<Floats> d32;
    const hn::Rebind<uint8_t, Floats> d8;
    const float* row_scales = scales_ + (output + first_row_) / kFloat8BlockSize * blocks_per_row_;
    const int64_t column_in_blocks = column + first_column_;
    HWY_ALIGN float split[kSplit ? kChunk : 1];
    auto scale = hn::Zero(d);
    if constexpr (kSplit) {
      // the tail's padding reads the last block
      const auto scale_of = [&](int64_t block) { return row_scales[std::min(block, blocks_per_row_ - 1)]; };
      spread_scales(column_in_blocks, kFloat8BlockSize, scale_of, split);
    } else {
      scale = hn::Set(d, row_scales[column_in_blocks / kFloat8BlockSize]);
    }
    // An e4m3 code placed at the top of a float's mantissa is the value times 2^-120, subnormals included.
    const auto to_value = hn::Set(d, 0x1p120f);
    for (int v = 0; v < kVectorsPerChunk; ++v) {
      const auto code = hn::PromoteTo(d32, hn::LoadU(d8, elements + v * kLanes));
      const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(d32, 0x80u)));
      const auto magnitude = hn::ShiftLeft<20>(hn::And(code, hn::Set(d32, 0x7fu)));
      const auto value = hn::Mul(hn::BitCast(d, hn::Or(sign, magnitude)), to_value);
      const auto is_nan = hn::RebindMask(d, hn::Eq(magnitude, hn::Set(d32, 0x7fu << 20)));
      if constexpr (kSplit) scale = hn::Load(d, split + v * kLanes);
      vectors[v] = hn::Mul(hn::IfThenElse(is_nan, hn::NaN(d), value), scale);
    }
  }

 private:
  const float* scales_;
  int64_t blocks_per_row_;
  int64_t first_row_;
  int64_t first_column_;
};

template <bool kSplit>
class Int4GroupCodec {
 public:
  static constexpr bool kSplitsScales = kSplit;
  explicit Int4GroupCodec(const WeightMatrix& weight)
      : words_(static_cast<const uint32_t*>(weight.data)),
        words_per_row_(ceil_div(weight.columns, 8)),
        scales_(weight.scales),
        scales_are_float_(weight.scale_type == DataType::kFloat32),
        group_size_(weight.group_size),
        groups_per_row_(scales_per_row(weight)),
        first_column_(weight.first_column_in_group) {}

  HWY_INLINE void decode(int64_t output, int64_t column, Vector* vectors) const {
    widen(words_ + output * words_per_row_ + column / 8, output, column, vectors);
  }
  HWY_INLINE void decode_tail(int64_t output, int64_t column, Vector* vectors) const {
    uint32_t padded[kChunk / 8] = {};
    const uint32_t* words = words_ + output * words_per_row_ + column / 8;
    std::copy(words, words + (words_per_row_ - column / 8), padded);
    widen(padded, output, column, vectors);
  }

 private:
  HWY_INLINE void widen(const uint32_t* words, int64_t output, int64_t column, Vector* vectors) const {
    const Floats d;
    const hn::RebindToSigned<Floats> d32;
    const hn::Rebind<int8_t, Floats> narrow;
    HWY_ALIGN uint8_t nibbles[kChunk];
    split_nibbles(words, nibbles);
    HWY_ALIGN float split[kSplit ? kChunk : 1];
    if constexpr (kSplit) {
      const auto group_scale = [&](int64_t group) { return scale_of(output, group); };
      spread_scales(column + first_column_, group_size_, group_scale, split);
    }
    for (int v = 0; v < kVectorsPerChunk; ++v) {
      const auto small = hn::LoadU(narrow, reinterpret_cast<const int8_t*>(nibbles) + v * kLanes);
      const auto quantized = hn::Sub(hn::PromoteTo(d32, small), hn::Set(d32, 8));
      const auto value = hn::ConvertTo(d, quantized);
      if constexpr (kSplit) {
        vectors[v] = hn::Mul(value, hn::Load(d, split + v * kLanes));
      } else {
        const int64_t group = (column + first_column_ + v * kLanes) / group_size_;
        vectors[v] = hn::Mul(value, hn::Set(d, scale_of(output, group)));
      }
    }
  }
  // Column j of the chunk is nibble j of the words, lowest first.
  static HWY_INLINE void split_nibbles(const uint32_t* words, uint8_t* nibbles) {
#if HWY_TARGET == HWY_SCALAR
    for (int j = 0; j < kChunk; ++j) nibbles[j] = static_cast<uint8_t>((words[j / 8] >> (4 * (j % 8))) & 0xf);
#else
    const hn::Full128<uint8_t> d8;
    const hn::Full128<uint16_t> d16;
    const auto bytes = hn::LoadU(d8, reinterpret_cast<const uint8_t*>(words));
    const auto mask = hn::Set(d8, 0x0f);
    const auto low = hn::And(bytes, mask);  // even columns
    const auto high = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, bytes))), mask);
    hn::Store(hn::InterleaveLower(d8, low, high), d8, nibbles);
    hn::Store(hn::InterleaveUpper(d8, low, high), d8, nibbles + 16);
#endif
  }
  HWY_INLINE float scale_of(int64_t output, int64_t group) const {
    // the tail's padding reads the last group
    const int64_t at = output * groups_per_row_ + std::min(group, groups_per_row_ - 1);
    return scales_are_float_ ? static_cast<const float*>(scales_)[at]
                             : bfloat16_to_float(static_cast<const uint16_t*>(scales_)[at]);
  }

  const uint32_t* words_;
  int64_t words_per_row_;
  const void* scales_;
  bool scales_are_float_;
  int64_t group_size_;
  int64_t groups_per_row_;
  int64_t first_column_;
};

template <typename Codec>
HWY_INLINE void decode_row(const Codec& codec, int64_t output, int64_t columns, float* values) {
  const Floats d;
  Vector vectors[kVectorsPerChunk];
  int64_t column = 0;
  for (; column + kChunk <= columns; column += kChunk) {
    codec.decode(output, column, vectors);
    for (int v = 0; v < kVectorsPerChunk; ++v) hn::StoreU(vectors[v], d, values + column + v * kLanes);
  }
  if (column < columns) {
    HWY_ALIGN float padded[kChunk];
    codec.decode_tail(output, column, vectors);
    for (int v = 0; v < kVectorsPerChunk; ++v) hn::Store(vectors[v], d, padded + v * kLanes);
    std::copy(padded, padded + (columns - column), values + column);
  }
}

// Whether a vector may need several scales. An int4 codec looks up one scale per vector, a float8 codec one per chunk.
inline bool vectors_split_scales(const WeightMatrix& weight) {
  const int64_t columns_per_lookup = weight.format == WeightFormat::kInt4Group ? kLanes : kChunk;
  return weight.first_column_in_group % columns_per_lookup != 0;
}

// Calls function(codec) with the codec of the weight's format.
template <typename Function>
HWY_INLINE void visit_codec(const WeightMatrix& weight, const Function& function) {
  switch (weight.format) {
    case WeightFormat::kFloat32:
      return function(Float32Codec(weight));
    case WeightFormat::kFloat16:
      return function(Float16Codec(weight));
    case WeightFormat::kBFloat16:
      return function(BFloat16Codec(weight));
    case WeightFormat::kInt4Group:
      if (vectors_split_scales(weight)) return function(Int4GroupCodec<true>(weight));
      return function(Int4GroupCodec<false>(weight));
    case WeightFormat::kFloat8Block:
      if (vectors_split_scales(weight)) return function(Float8BlockCodec<true>(weight));
      return function(Float8BlockCodec<false>(weight));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace gimbal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
