#include "parallel/exchange_backends.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gimbal {

std::span<const ExchangeBackend> exchange_backends() {
  static constexpr std::array kBackends = std::to_array<ExchangeBackend>({
      {"direct", "tokens move through memory that the ranks of one process share", ExchangeKind::kDirect},
      {"mpi", "tokens move in MPI messages or one-sided puts, also between machines", ExchangeKind::kMpi},
      {"none", "no tokens move: every rank sees all of them and partial sums are added up", ExchangeKind::kNone},
      {"deepep", "DeepEP: all-to-all over NVLink and RDMA with normal and low-latency modes", {}, "direct", true},
      {"nixl", "NIXL: elastic all-to-all over UCX memory transfers", {}, "direct"},
      {"mooncake", "Mooncake EP: elastic all-to-all over RDMA", {}, "direct"},
      {"mori", "MORI: all-to-all for AMD GPUs", {}, "direct"},
      {"flashinfer", "FlashInfer all-to-all over NVLink multicast memory, one DP group per rank", {}, "direct"},
      {"ascend_fuseep", "fused dispatch and experts for Ascend NPUs", {}, "direct"},
      {"megamoe", "dispatch, experts and combine fused in one GPU kernel", {}, "direct"},
      {"pplx", "Perplexity's low-latency all-to-all over NVSHMEM", {}, "direct"},
      {"deepep_v2", "DeepEP's second interface", {}, "direct"},
      {"flashinfer_megamoe", "FlashInfer's fused dispatch, experts and combine", {}, "direct"},
      {"ascend_tp", "tensor-parallel experts for Ascend NPUs", {}, "none"},
  });
  return kBackends;
}

Result<ExchangeChoice> choose_exchange(std::string_view name) {
  std::vector<std::string_view> offered;
  for (const ExchangeBackend& backend : exchange_backends()) {
    if (backend.kind) offered.push_back(backend.name);
    if (backend.name != name) continue;
    if (backend.kind) return ExchangeChoice{.kind = *backend.kind, .note = {}};
    if (backend.is_mapped) {
      return ExchangeChoice{
          .kind = choose_exchange(backend.same_contract_here)->kind,
          .note = fmt::format("--moe-a2a-backend {} ({}) is not in this build; {} keeps the same contract and is used",
                              name, backend.description, backend.same_contract_here)};
    }
    return fail(Error::invalid(
        fmt::format("--moe-a2a-backend {} is {}. Required: a build with it. Offered: {}. Use --moe-a2a-backend {}, "
                    "which keeps the same contract.",
                    name, backend.description, fmt::join(offered, ", "), backend.same_contract_here),
        "--moe-a2a-backend"));
  }
  return fail(Error::invalid(
      fmt::format("--moe-a2a-backend '{}' is unknown. Offered: {}.", name.substr(0, 60), fmt::join(offered, ", ")),
      "--moe-a2a-backend"));
}

}  // namespace gimbal
