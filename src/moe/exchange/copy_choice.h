// copy_choice: which physical copy of an expert serves a token.
#pragma once

#include <cstdint>

#include "moe/token_layouts.h"
#include "parallel/expert_placement.h"

namespace gimbal {

enum class CopyChoiceKind : uint8_t {
  kStatic,   // a copy on the own rank, else one that depends on the own rank only
  kDynamic,  // copies take turns by the token's row
};

struct CopyChoice {
  CopyChoiceKind kind = CopyChoiceKind::kDynamic;
  int64_t expert_rank = 0;  // of this rank; kStatic
};

// Turns logical expert ids of `tokens` into slots of `placement`. A function of (row, ids, choice): ranks that hold the
// same rows and use kDynamic agree.
void choose_copies(const ExpertPlacement& placement, int64_t layer, const CopyChoice& choice, TokenMajorBatch& tokens);

}  // namespace gimbal
