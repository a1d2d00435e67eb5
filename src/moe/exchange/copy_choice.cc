#include "moe/exchange/copy_choice.h"

namespace gimbal {
namespace {

int32_t static_copy(const ExpertPlacement& placement, std::span<const int32_t> copies, int64_t expert_rank) {
  for (const int32_t slot : copies) {
    if (placement.rank_of_slot(slot) == expert_rank) return slot;
  }
  return copies[static_cast<size_t>(expert_rank) % copies.size()];
}

}  // namespace

void choose_copies(const ExpertPlacement& placement, int64_t layer, const CopyChoice& choice, TokenMajorBatch& tokens) {
  for (size_t pair = 0; pair < tokens.expert_ids.size(); ++pair) {
    const std::span<const int32_t> copies = placement.copies_of(layer, tokens.expert_ids[pair]);
    const size_t token = pair / static_cast<size_t>(tokens.experts_per_token);
    tokens.expert_ids[pair] = choice.kind == CopyChoiceKind::kStatic
                                  ? static_copy(placement, copies, choice.expert_rank)
                                  : copies[token % copies.size()];
  }
}

}  // namespace gimbal
