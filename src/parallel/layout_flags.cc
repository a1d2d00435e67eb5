#include "parallel/layout_flags.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "parallel/exchange_backends.h"

namespace gimbal {
namespace {

int64_t given_or_one(int64_t size) { return size < 0 ? 1 : size; }

// Reads the flags one after the other into a choice.
class FlagReader {
 public:
  explicit FlagReader(const Settings& settings) : settings_(settings) {}

  Result<LayoutChoice> read() {
    if (settings_.layout.empty()) {
      GIMBAL_RETURN_IF_ERROR(read_sizes());
    } else {
      GIMBAL_RETURN_IF_ERROR(read_name());
    }
    GIMBAL_RETURN_IF_ERROR(read_exchange());
    GIMBAL_RETURN_IF_ERROR(read_dense_size());
    if (!settings_.pp_layer_partition.empty()) {
      GIMBAL_ASSIGN_OR_RETURN(choice_.layout.layers_per_stage, parse_layer_partition(settings_.pp_layer_partition));
    }
    return std::move(choice_);
  }

 private:
  Status read_name() {
    GIMBAL_ASSIGN_OR_RETURN(choice_.layout, parse_layout(settings_.layout));
    const ParallelLayout& layout = choice_.layout;
    for (const ExchangeKind kind : {ExchangeKind::kNone, ExchangeKind::kDirect, ExchangeKind::kMpi}) {
      const std::string suffix = fmt::format(":{}", name_of(kind));
      choice_.is_exchange_given = choice_.is_exchange_given || settings_.layout.find(suffix) != std::string::npos;
    }
    GIMBAL_RETURN_IF_ERROR(require_same("--tp-size", settings_.tp_size, layout.stage_size()));
    GIMBAL_RETURN_IF_ERROR(require_same("--pp-size", settings_.pp_size, layout.num_stages));
    GIMBAL_RETURN_IF_ERROR(require_same("--dp-size", settings_.dp_size, layout.attention_dp));
    return require_same("--ep-size", settings_.ep_size, layout.expert_parallel);
  }

  Status require_same(std::string_view flag, int64_t given, int64_t named) const {
    if (given < 0 || given == named) return {};
    return fail(Error::invalid(fmt::format("{} {} contradicts --layout {}, which means {}. Leave one of them out.",
                                           flag, given, settings_.layout, named),
                               "--layout"));
  }

  Status read_sizes() {
    ParallelLayout& layout = choice_.layout;
    const int64_t tp = given_or_one(settings_.tp_size);
    const int64_t dp = given_or_one(settings_.dp_size);
    layout.num_stages = given_or_one(settings_.pp_size);
    if (dp > 1 && !settings_.enable_dp_attention) {
      return fail(Error::invalid(
          fmt::format("--dp-size {} without --enable-dp-attention asks for {} whole replicas. Offered: one engine per "
                      "server. Add --enable-dp-attention to split attention by request, or start {} servers.",
                      dp, dp, dp),
          "--dp-size"));
    }
    if (settings_.enable_dp_attention && dp == 1)
      choice_.notes.emplace_back("--enable-dp-attention has no effect with --dp-size 1");
    layout.attention_dp = divisor("--dp-size", dp, tp);
    layout.attention_tp = tp / layout.attention_dp;
    layout.dense_tp = layout.attention_tp;
    layout.expert_parallel = divisor("--ep-size", given_or_one(settings_.ep_size), tp);
    layout.expert_tp = tp / layout.expert_parallel;
    return {};
  }

  // `size` if it divides tp; else a violation, and the next lower size that does.
  int64_t divisor(std::string_view flag, int64_t size, int64_t tp) {
    if (tp % size == 0) return size;
    choice_.violations.push_back(
        {.rule = std::string(flag),
         .required = fmt::format("a divisor of --tp-size {}", tp),
         .offered = fmt::format("{}", size),
         .missing = size > tp ? fmt::format("--tp-size {} or a multiple", size) : "sizes that divide"});
    int64_t lower = std::min(size, tp);
    while (tp % lower != 0) --lower;
    return lower;
  }

  Status read_exchange() {
    ParallelLayout& layout = choice_.layout;
    if (settings_.deepep_mode != "auto") {
      layout.mode = settings_.deepep_mode == "normal" ? ExchangeMode::kNormal : ExchangeMode::kLowLatency;
    }
    if (settings_.moe_a2a_backend == "auto") {
      drop_idle_mode();
      return {};
    }
    GIMBAL_ASSIGN_OR_RETURN(const ExchangeChoice exchange, choose_exchange(settings_.moe_a2a_backend));
    if (choice_.is_exchange_given && exchange.kind != layout.exchange) {
      return fail(Error::invalid(fmt::format("--moe-a2a-backend {} contradicts --layout {}. Leave one of them out.",
                                             settings_.moe_a2a_backend, settings_.layout),
                                 "--moe-a2a-backend"));
    }
    choice_.is_exchange_given = true;
    layout.exchange = exchange.kind;
    if (!exchange.note.empty()) choice_.notes.push_back(exchange.note);
    drop_idle_mode();
    if (exchange.kind != ExchangeKind::kNone && settings_.layout.empty() && settings_.ep_size < 0) {
      layout.expert_parallel = layout.stage_size();
      layout.expert_tp = 1;
      choice_.notes.push_back(
          fmt::format("--ep-size is {}, all ranks of the stage, because --moe-a2a-backend {} was "
                      "given without it",
                      layout.expert_parallel, settings_.moe_a2a_backend));
    }
    return {};
  }

  // SGLang's unit files carry the mode whatever the backend; it means nothing without an exchange.
  void drop_idle_mode() {
    if (settings_.deepep_mode == "auto" || choice_.layout.exchange != ExchangeKind::kNone) return;
    choice_.layout.mode = ExchangeMode::kAuto;
    choice_.notes.push_back(fmt::format("--deepep-mode {} has no effect: with exchange none no tokens are exchanged",
                                        settings_.deepep_mode));
  }

  Status read_dense_size() {
    const std::string& text = settings_.moe_dense_tp_size;
    if (text == "none") return {};
    int64_t size = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (code != std::errc() || end != text.data() + text.size() || size < 1 || size > kMostRanks) {
      return fail(Error::invalid(
          fmt::format("--moe-dense-tp-size is {}; allowed: none, 1, or the ranks of an attention group.", text),
          "--moe-dense-tp-size"));
    }
    choice_.layout.dense_tp = size;
    return {};
  }

  const Settings& settings_;
  LayoutChoice choice_;
};

}  // namespace

Result<LayoutChoice> choose_layout(const Settings& settings) { return FlagReader(settings).read(); }

}  // namespace gimbal
