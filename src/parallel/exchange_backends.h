// The list of token exchanges: those of this build, and those of other servers with what they are and which exchange
// here keeps the same contract.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "parallel/parallel_layout.h"

namespace gimbal {

struct ExchangeBackend {
  std::string_view name;  // as --moe-a2a-backend takes it
  std::string_view description;
  std::optional<ExchangeKind> kind = {};     // of this build; nullopt: another server's
  std::string_view same_contract_here = {};  // of another server's: the exchange to use instead
  bool is_mapped = false;                    // taken for `same_contract_here` with a printed note
};

// In priority order; other servers' behind.
std::span<const ExchangeBackend> exchange_backends();

struct ExchangeChoice {
  ExchangeKind kind = ExchangeKind::kNone;
  std::string note;  // printed once; empty: nothing to say
};

// The exchange of a --moe-a2a-backend value. A name of another server is mapped with a note or refused: what it is,
// that it is not in this build, and what gives the same contract. An unknown name is refused with the list.
Result<ExchangeChoice> choose_exchange(std::string_view name);

}  // namespace gimbal
