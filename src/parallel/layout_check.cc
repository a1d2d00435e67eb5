#include "parallel/layout_check.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gimbal {
namespace {

constexpr int64_t kMostWorldsTried = 128;  // alternatives are looked for up to this many ranks

// Collects violations of one layout.
class LayoutChecker {
 public:
  LayoutChecker(const ParallelLayout& layout, const LayoutProblem& problem)
      : layout_(layout),
        config_(*problem.config),
        num_redundant_(problem.num_redundant_experts),
        num_processes_(problem.num_processes) {}

  std::vector<LayoutViolation> check() {
    if (!check_sizes()) return std::move(violations_);
    check_stages();
    check_divides("attention heads", config_.num_attention_heads, "attention tp", layout_.attention_tp);
    check_dense();
    check_experts();
    check_exchange();
    check_processes();
    return std::move(violations_);
  }

 private:
  void add(std::string rule, std::string required, std::string offered, std::string missing) {
    violations_.push_back({std::move(rule), std::move(required), std::move(offered), std::move(missing)});
  }

  // The other rules divide by these sizes, so they are looked at first.
  bool check_sizes() {
    for (const int64_t size : {layout_.num_stages, layout_.attention_dp, layout_.attention_tp, layout_.expert_parallel,
                               layout_.expert_tp, layout_.dense_tp}) {
      if (size < 1 || size > kMostRanks) {
        add("sizes", fmt::format("every axis from 1 to {} ranks", kMostRanks), fmt::format("{}", size), "a valid size");
        return false;
      }
    }
    const int64_t expert_ranks = layout_.expert_parallel * layout_.expert_tp;
    if (layout_.stage_size() != expert_ranks) {
      add("ranks of a stage", "attention dp x attention tp = expert parallel x expert tp",
          fmt::format("{} x {} = {} and {} x {} = {}", layout_.attention_dp, layout_.attention_tp, layout_.stage_size(),
                      layout_.expert_parallel, layout_.expert_tp, expert_ranks),
          "equal products");
    }
    if (layout_.world_size() > kMostRanks || layout_.stage_size() > kMostRanks) {
      add("ranks", fmt::format("at most {}", kMostRanks), fmt::format("{}", layout_.world_size()), "fewer ranks");
      return false;
    }
    return true;
  }

  void check_stages() {
    const int64_t num_layers = config_.num_layers;
    if (layout_.num_stages > num_layers) {
      add("pipeline stages", "at least one layer per stage",
          fmt::format("{} layers for {} stages", num_layers, layout_.num_stages),
          fmt::format("{} layers", layout_.num_stages - num_layers));
    }
    const std::vector<int64_t>& parts = layout_.layers_per_stage;
    if (parts.empty()) return;
    if (static_cast<int64_t>(parts.size()) != layout_.num_stages) {
      add("--pp-layer-partition", fmt::format("{} parts, one per stage", layout_.num_stages),
          fmt::format("{} parts for {} stages", parts.size(), layout_.num_stages),
          fmt::format("a list of {}", layout_.num_stages));
    }
    int64_t sum = 0;
    for (const int64_t part : parts) sum = std::min(sum + std::min(part, kMostRanks * 1000), kMostRanks * 1000);
    if (sum != num_layers) {
      add("--pp-layer-partition", fmt::format("a sum of {} layers", num_layers),
          fmt::format("{} of {} layers", sum, num_layers), fmt::format("{} layers", num_layers - sum));
    }
    for (size_t stage = 0; stage < parts.size(); ++stage) {
      if (parts[stage] >= 1) continue;
      add("--pp-layer-partition", "at least one layer per stage", fmt::format("stage {} is empty", stage),
          "a layer for it");
      break;
    }
  }

  void check_divides(std::string_view what, int64_t count, std::string_view axis, int64_t ranks) {
    if (count % ranks == 0) return;
    add(std::string(what), fmt::format("a multiple of {} {}", axis, ranks), fmt::format("{}", count),
        fmt::format("{} more, or another {}", ranks - count % ranks, axis));
  }

  void check_dense() {
    if (layout_.dense_tp != 1 && layout_.dense_tp != layout_.attention_tp) {
      add("--moe-dense-tp-size",
          layout_.attention_tp == 1 ? "1" : fmt::format("1 or attention tp {}", layout_.attention_tp),
          fmt::format("{}", layout_.dense_tp), "one of these");
      return;
    }
    if (config_.num_moe_layers() < config_.num_layers)
      check_divides("intermediate_size of dense layers", config_.intermediate_size, "dense tp", layout_.dense_tp);
    if (config_.num_moe_layers() > 0 && config_.num_shared_experts > 0) {
      check_divides("width of the shared expert", config_.num_shared_experts * config_.moe_intermediate_size,
                    "dense tp", layout_.dense_tp);
    }
  }

  void check_experts() {
    if (config_.num_moe_layers() == 0) {
      if (layout_.expert_parallel > 1)
        add("expert parallel", "a model with routed experts", "a dense model", "experts");
      return;
    }
    const int64_t ranks = layout_.expert_parallel;
    const int64_t slots = config_.num_experts + num_redundant_;
    if (ranks > config_.num_experts) {
      add("expert parallel", fmt::format("at most as many ranks as experts ({})", config_.num_experts),
          fmt::format("ep {}", ranks), fmt::format("{} experts", ranks - config_.num_experts));
    }
    if (slots % ranks != 0) {
      const int64_t enough = num_redundant_ + ranks - slots % ranks;
      add("experts", fmt::format("experts and redundant copies together a multiple of ep {}", ranks),
          num_redundant_ > 0 ? fmt::format("{} experts + {} copies", config_.num_experts, num_redundant_)
                             : fmt::format("{} experts", config_.num_experts),
          fmt::format("{} redundant copies in all would do (--ep-num-redundant-experts {})", enough, enough));
    }
    if (num_redundant_ > 0 && ranks == 1) {
      add("--ep-num-redundant-experts", "expert parallel > 1, so that copies are on different ranks", "ep 1",
          "an expert-parallel layout");
    }
    check_divides("moe_intermediate_size", config_.moe_intermediate_size, "expert tp", layout_.expert_tp);
  }

  void check_exchange() {
    if (layout_.exchange == ExchangeKind::kNone) {
      if (layout_.mode != ExchangeMode::kAuto) {
        add(fmt::format("mode {}", name_of(layout_.mode)), "an exchange (direct or mpi)", "exchange none",
            "a --moe-a2a-backend");
      }
      return;
    }
    if (layout_.expert_parallel == 1) {
      add(fmt::format("exchange {}", name_of(layout_.exchange)), "expert parallel > 1", "ep 1",
          "expert-parallel ranks to exchange tokens with");
    }
  }

  void check_processes() {
    if (num_processes_ == 0) return;
    if (layout_.exchange == ExchangeKind::kDirect) {
      add("exchange direct", "ranks that share memory (threads of one process)",
          fmt::format("{} processes", num_processes_), "--moe-a2a-backend mpi, or --comm thread without mpirun");
    }
    if (layout_.world_size() != num_processes_) {
      add("ranks", fmt::format("{} processes", layout_.world_size()), fmt::format("{} (mpirun -n)", num_processes_),
          fmt::format("mpirun -n {}", layout_.world_size()));
    }
  }

  const ParallelLayout& layout_;
  const ModelConfig& config_;
  int64_t num_redundant_;
  int64_t num_processes_;
  std::vector<LayoutViolation> violations_;
};

double distance(const ParallelLayout& a, const ParallelLayout& b) {
  const auto apart = [](int64_t x, int64_t y) {
    return std::fabs(std::log2(static_cast<double>(x) / static_cast<double>(y)));
  };
  return apart(a.num_stages, b.num_stages) + apart(a.attention_dp, b.attention_dp) +
         apart(a.attention_tp, b.attention_tp) + apart(a.expert_parallel, b.expert_parallel) +
         apart(a.expert_tp, b.expert_tp) + 3 * apart(a.world_size(), b.world_size()) +
         ((a.exchange == ExchangeKind::kNone) == (b.exchange == ExchangeKind::kNone) ? 0.0 : 0.5);
}

}  // namespace

std::vector<LayoutViolation> check_layout(const ParallelLayout& layout, const LayoutProblem& problem) {
  return LayoutChecker(layout, problem).check();
}

std::vector<ParallelLayout> valid_layouts(const LayoutProblem& problem, int64_t world_size) {
  std::vector<ParallelLayout> layouts;
  const auto try_layout = [&](ParallelLayout layout) {
    const ExchangeKind moving = problem.num_processes > 0 ? ExchangeKind::kMpi : ExchangeKind::kDirect;
    for (const ExchangeKind exchange : {ExchangeKind::kNone, moving}) {
      layout.exchange = exchange;
      if (check_layout(layout, problem).empty()) layouts.push_back(layout);
    }
  };
  for (int64_t stages = 1; stages <= world_size; ++stages) {
    if (world_size % stages != 0) continue;
    const int64_t stage_size = world_size / stages;
    for (int64_t tp = 1; tp <= stage_size; ++tp) {
      if (stage_size % tp != 0) continue;
      for (int64_t ep = 1; ep <= stage_size; ++ep) {
        if (stage_size % ep != 0) continue;
        try_layout({.num_stages = stages,
                    .attention_dp = stage_size / tp,
                    .attention_tp = tp,
                    .expert_parallel = ep,
                    .expert_tp = stage_size / ep,
                    .dense_tp = tp});
      }
    }
  }
  return layouts;
}

std::vector<ParallelLayout> nearest_layouts(const ParallelLayout& layout, const LayoutProblem& problem, size_t count) {
  std::vector<ParallelLayout> found;
  const int64_t world = std::clamp<int64_t>(layout.world_size(), 1, kMostWorldsTried);
  for (int64_t size = 1; size <= std::min(std::max(2 * world, problem.num_processes), kMostWorldsTried); ++size) {
    if (problem.num_processes > 0 && size != problem.num_processes) continue;
    const std::vector<ParallelLayout> valid = valid_layouts(problem, size);
    found.insert(found.end(), valid.begin(), valid.end());
  }
  std::stable_sort(found.begin(), found.end(), [&](const ParallelLayout& a, const ParallelLayout& b) {
    return distance(a, layout) < distance(b, layout);
  });
  if (found.size() > count) found.resize(count);
  return found;
}

std::string describe_violations(const std::vector<LayoutViolation>& violations) {
  std::string text;
  for (const LayoutViolation& violation : violations) {
    text += fmt::format("\n  {}: required {}, offered {}, missing {}", violation.rule, violation.required,
                        violation.offered, violation.missing);
  }
  return text;
}

Status require_valid_layout(const ParallelLayout& layout, const LayoutProblem& problem,
                            std::vector<LayoutViolation> known) {
  std::vector<LayoutViolation> violations = std::move(known);
  std::vector<LayoutViolation> found = check_layout(layout, problem);
  violations.insert(violations.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  if (violations.empty()) return {};
  std::vector<std::string> names;
  ParallelLayout wanted = layout;
  for (int64_t* size :
       {&wanted.num_stages, &wanted.attention_dp, &wanted.attention_tp, &wanted.expert_parallel, &wanted.expert_tp}) {
    *size = std::clamp<int64_t>(*size, 1, kMostWorldsTried);
  }
  for (const ParallelLayout& near : nearest_layouts(wanted, problem, 3)) names.push_back(layout_name(near));
  return fail(
      Error::invalid(fmt::format("Layout {} ({} ranks) cannot run this model:{}\nNearest layouts that work: {}.",
                                 layout_name(layout), layout.world_size(), describe_violations(violations),
                                 names.empty() ? "none was found" : fmt::format("{}", fmt::join(names, ", "))),
                     "--layout"));
}

}  // namespace gimbal
