#include "model/deepseek_v3/weights.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "checkpoint/value_check.h"
#include "quantization/weight_slice.h"

namespace gimbal {

// Turns planned weights into views and puts them where their role says.
class WeightBinder {
 public:
  WeightBinder(DecoderWeights& weights, const ModelConfig& config, const RankWeightPlan& plan)
      : weights_(weights), config_(config), plan_(plan) {}

  Status bind_all() {
    weights_.layers.resize(static_cast<size_t>(plan_.layers.size()));
    for (int64_t layer = plan_.layers.begin; layer < plan_.layers.end; ++layer) prepare_layer(layer);
    for (const RankWeight& held : plan_.weights) GIMBAL_RETURN_IF_ERROR(bind(held));
    if (config_.tie_word_embeddings) weights_.output_head = weights_.embedding;
    return {};
  }

 private:
  void prepare_layer(int64_t index) {
    LayerWeights& layer = weights_.layers[static_cast<size_t>(index - plan_.layers.begin)];
    if (!config_.is_moe_layer(index)) {
      layer.dense.emplace();
      return;
    }
    layer.moe.emplace();
    if (config_.num_shared_experts > 0) layer.moe->shared.emplace();
  }

  Status bind(const RankWeight& held) {
    const PlannedWeight& planned = *held.weight;
    if (held.is_first_holder) GIMBAL_RETURN_IF_ERROR(verify_values(*weights_.checkpoint_, planned));
    if (std::vector<float>* vector = vector_slot(planned)) {
      *vector = to_floats(weights_.checkpoint_->tensor(planned.tensors[0].name));
      return {};
    }
    WeightMatrix* matrix = matrix_slot(held);
    GIMBAL_CHECK(matrix != nullptr);
    *matrix = slice(view(planned), held.slice);
    return {};
  }

  LayerWeights& layer_of(const PlannedWeight& planned) {
    return weights_.layers[static_cast<size_t>(planned.layer - plan_.layers.begin)];
  }

  ExpertWeights& expert_of(const RankWeight& held) {
    std::vector<ExpertWeights>& experts = layer_of(*held.weight).moe->experts;
    const auto slot = static_cast<size_t>(held.local_slot);
    if (experts.size() <= slot) experts.resize(slot + 1);
    return experts[slot];
  }

  std::vector<float>* vector_slot(const PlannedWeight& planned) {
    switch (planned.role) {
      case WeightRole::kFinalNorm:
        return &weights_.final_norm;
      case WeightRole::kInputNorm:
        return &layer_of(planned).attention.input_norm;
      case WeightRole::kPostAttentionNorm:
        return &layer_of(planned).post_attention_norm;
      case WeightRole::kQueryNorm:
        return &layer_of(planned).attention.query_norm;
      case WeightRole::kKeyValueNorm:
        return &layer_of(planned).attention.key_value_norm;
      case WeightRole::kRouterBias:
        return &layer_of(planned).moe->router_bias;
      default:
        return nullptr;
    }
  }

  WeightMatrix* matrix_slot(const RankWeight& held) {
    const PlannedWeight& planned = *held.weight;
    switch (planned.role) {
      case WeightRole::kEmbedding:
        return &weights_.embedding;
      case WeightRole::kOutputHead:
        return &weights_.output_head;
      case WeightRole::kQueryDown:
        return &layer_of(planned).attention.query_down;
      case WeightRole::kQueryUp:
        return &layer_of(planned).attention.query_up;
      case WeightRole::kKeyValueDown:
        return &layer_of(planned).attention.key_value_down;
      case WeightRole::kKeyValueUp:
        return &layer_of(planned).attention.key_value_up;
      case WeightRole::kAttentionOutput:
        return &layer_of(planned).attention.output;
      default:
        return feed_forward_slot(held);
    }
  }

  WeightMatrix* feed_forward_slot(const RankWeight& held) {
    const PlannedWeight& planned = *held.weight;
    LayerWeights& layer = layer_of(planned);
    switch (planned.role) {
      case WeightRole::kDenseGate:
        return &layer.dense->gate;
      case WeightRole::kDenseUp:
        return &layer.dense->up;
      case WeightRole::kDenseDown:
        return &layer.dense->down;
      case WeightRole::kRouter:
        return &layer.moe->router;
      case WeightRole::kSharedGate:
        return &layer.moe->shared->gate;
      case WeightRole::kSharedUp:
        return &layer.moe->shared->up;
      case WeightRole::kSharedDown:
        return &layer.moe->shared->down;
      case WeightRole::kExpertGate:
        return &expert_of(held).gate;
      case WeightRole::kExpertUp:
        return &expert_of(held).up;
      case WeightRole::kExpertDown:
        return &expert_of(held).down;
      default:
        return nullptr;
    }
  }

  // Rows are cut without a copy, columns are repacked into memory of the rank.
  WeightMatrix slice(const WeightMatrix& whole, const WeightSlice& wanted) {
    if (is_view(whole, wanted)) return view_rows(whole, wanted.row_begin, wanted.row_end);
    const uint64_t bytes = slice_memory_bytes(whole, wanted);
    auto& copy = weights_.copies_.emplace_back(std::make_unique<std::byte[]>(bytes));
    weights_.copied_bytes_ += bytes;
    return copy_slice(whole, wanted, {copy.get(), bytes});
  }

  WeightMatrix view(const PlannedWeight& planned) {
    WeightMatrix matrix{.format = planned.format, .rows = planned.rows, .columns = planned.columns};
    matrix.data = aligned(weights_.checkpoint_->tensor(planned.tensors[0].name));
    if (planned.format == WeightFormat::kFloat8Block) {
      matrix.scales = aligned(weights_.checkpoint_->tensor(planned.tensors[1].name));
    }
    if (planned.format == WeightFormat::kInt4Group) {
      const StoredTensor scales = weights_.checkpoint_->tensor(planned.tensors[1].name);
      matrix.group_size = config_.quantization.group_size;
      matrix.scale_type = scales.data_type == DataType::kBFloat16 ? DataType::kBFloat16 : DataType::kFloat32;
      if (scales.data_type == DataType::kFloat16) {
        matrix.scales = keep(to_floats(scales));
      } else {
        matrix.scales = aligned(scales);
      }
    }
    return matrix;
  }

  // safetensors promises no alignment; kernels want that of the element.
  const void* aligned(const StoredTensor& tensor) {
    const auto address = reinterpret_cast<uintptr_t>(tensor.bytes.data());
    if (address % static_cast<uintptr_t>(size_of(tensor.data_type)) == 0) return tensor.bytes.data();
    auto& copy = weights_.copies_.emplace_back(std::make_unique<std::byte[]>(tensor.bytes.size()));
    std::memcpy(copy.get(), tensor.bytes.data(), tensor.bytes.size());
    return copy.get();
  }

  const void* keep(const std::vector<float>& values) {
    auto& copy = weights_.copies_.emplace_back(std::make_unique<std::byte[]>(values.size() * sizeof(float)));
    std::memcpy(copy.get(), values.data(), values.size() * sizeof(float));
    return copy.get();
  }

  static std::vector<float> to_floats(const StoredTensor& tensor) {
    const auto element_bytes = static_cast<size_t>(size_of(tensor.data_type));
    std::vector<float> values(tensor.bytes.size() / element_bytes);
    for (size_t i = 0; i < values.size(); ++i) {
      if (tensor.data_type == DataType::kFloat32) {
        std::memcpy(&values[i], tensor.bytes.data() + i * element_bytes, sizeof(float));
        continue;
      }
      uint16_t bits = 0;
      std::memcpy(&bits, tensor.bytes.data() + i * element_bytes, sizeof(bits));
      values[i] = tensor.data_type == DataType::kFloat16 ? float16_to_float(bits) : bfloat16_to_float(bits);
    }
    return values;
  }

  DecoderWeights& weights_;
  const ModelConfig& config_;
  const RankWeightPlan& plan_;
};

Result<DecoderWeights> DecoderWeights::load(std::shared_ptr<const Checkpoint> checkpoint, const ModelConfig& config,
                                            const RankWeightPlan& plan) {
  DecoderWeights weights;
  weights.checkpoint_ = std::move(checkpoint);
  GIMBAL_RETURN_IF_ERROR(WeightBinder(weights, config, plan).bind_all());
  return weights;
}

}  // namespace gimbal
