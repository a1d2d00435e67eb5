// The decoder against the recorded answers of an independent float32 implementation (tests/golden/data/model).
#include "model/deepseek_v3/decoder.h"

#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include <gtest/gtest.h>

#include "base/file_text.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/safetensors_reader.h"

namespace gimbal {
namespace {

const std::string kModel = std::string(GIMBAL_SOURCE_DIR) + "/models/kimi-k2-mini";
const std::string kGoldens = std::string(GIMBAL_SOURCE_DIR) + "/tests/golden/data/model/goldens.safetensors";
const std::vector<std::string> kTags = {"text0", "text1", "text2", "text3", "text4", "text5", "chat0", "chat1"};
constexpr double kLogitTolerance = 1e-3;

class Goldens {
 public:
  Goldens() : file_(*MappedFile::open(kGoldens)) {
    const auto header = read_safetensors_header(kGoldens);
    for (const SafetensorsEntry& entry : *header) entries_[entry.name] = entry;
  }
  template <typename T>
  std::vector<T> read(const std::string& name) const {
    const SafetensorsEntry& entry = entries_.at(name);
    std::vector<T> values(entry.bytes / sizeof(T));
    std::memcpy(values.data(), file_.bytes().data() + entry.begin, entry.bytes);
    return values;
  }

 private:
  MappedFile file_;
  std::map<std::string, SafetensorsEntry> entries_;
};

// A model with room for one sequence.
class Model {
 public:
  explicit Model(OpBackend backend = OpBackend::kCpu) : config_(*read_model_config(kModel)), team_(2) {
    auto checkpoint = Checkpoint::open(kModel, config_);
    EXPECT_TRUE(checkpoint.has_value());
    auto shared = std::make_shared<const Checkpoint>(std::move(*checkpoint));
    rank_ = std::make_unique<RankContext>(make_single_rank_context(config_));
    const RankWeightPlan held = make_rank_weight_plan(
        {.plan = &shared->plan(), .config = &config_, .layout = &rank_->layout, .placement = rank_->placement.get()},
        0);
    weights_ = std::make_unique<DecoderWeights>(*DecoderWeights::load(shared, config_, held));
    cache_ = std::make_unique<KvStorage>(
        *KvStorage::allocate({.num_layers = 8, .num_pages = 64, .page_size = 16, .width = 80}));
    const DecoderContext context{
        .ops = {.backend = backend, .team = &team_}, .attention = {.team = &team_}, .experts = {.team = &team_}};
    decoder_ = std::make_unique<Decoder>(config_, *weights_, rank_.get(), context, config_.rms_norm_eps);
    for (PageId page = 0; page < 64; ++page) pages_.push_back(63 - page);
  }

  // Logits of every row [n][vocab].
  std::vector<float> forward(std::span<const int32_t> ids, int64_t first_position, AttentionForm form,
                             const HiddenObserver& observer = {}) {
    std::vector<int64_t> positions, rows;
    for (size_t i = 0; i < ids.size(); ++i) {
      positions.push_back(first_position + static_cast<int64_t>(i));
      rows.push_back(static_cast<int64_t>(i));
    }
    const std::vector<AttentionSequence> sequences = {{.first_row = 0,
                                                       .num_rows = static_cast<int64_t>(ids.size()),
                                                       .first_position = first_position,
                                                       .pages = pages_,
                                                       .form = form}};
    std::vector<float> logits(ids.size() * static_cast<size_t>(config_.vocab_size));
    const std::vector<int64_t> group_rows = {static_cast<int64_t>(ids.size())};
    EXPECT_TRUE(decoder_
                    ->forward({.group_rows = group_rows,
                               .token_ids = ids,
                               .positions = positions,
                               .sequences = sequences,
                               .logit_rows = rows},
                              *cache_, logits.data(), observer)
                    .has_value());
    return logits;
  }
  size_t vocab_size() const { return static_cast<size_t>(config_.vocab_size); }

 private:
  ModelConfig config_;
  ThreadTeam team_;
  std::unique_ptr<RankContext> rank_;
  std::unique_ptr<DecoderWeights> weights_;
  std::unique_ptr<KvStorage> cache_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<PageId> pages_;
};

TEST(DecoderGolden, LogitsOfEveryPromptPosition) {
  const Goldens goldens;
  Model model;
  double worst = 0;
  for (const std::string& tag : kTags) {
    const auto ids = goldens.read<int32_t>(tag + ".ids");
    const auto top_ids = goldens.read<int32_t>(tag + ".top_ids");
    const auto top_logits = goldens.read<float>(tag + ".top_logits");
    const auto last = goldens.read<float>(tag + ".last_logits");
    for (const AttentionForm form : {AttentionForm::kExpanded, AttentionForm::kAbsorbed}) {
      const auto logits = model.forward(ids, 0, form);
      for (size_t i = 0; i < top_ids.size(); ++i) {
        const float found = logits[i / 16 * model.vocab_size() + static_cast<size_t>(top_ids[i])];
        worst = std::max<double>(worst, std::fabs(found - top_logits[i]));
        ASSERT_NEAR(found, top_logits[i], kLogitTolerance) << tag << " position " << i / 16;
      }
      for (size_t i = 0; i < last.size(); ++i)
        ASSERT_NEAR(logits[(ids.size() - 1) * model.vocab_size() + i], last[i], kLogitTolerance) << tag;
    }
  }
  std::printf("largest |logit - golden| = %.2e\n", worst);
}

TEST(DecoderGolden, HiddenRowsOfTheLastPosition) {
  const Goldens goldens;
  Model model;
  double worst = 0;
  for (const std::string& tag : kTags) {
    const auto ids = goldens.read<int32_t>(tag + ".ids");
    const auto hidden =
        goldens.read<float>(tag + ".hidden_last");  // [9][128]; row 8 is the last layer after the final norm
    int64_t num_stages = 0;
    model.forward(ids, 0, AttentionForm::kExpanded, [&](int64_t stage, std::span<const float> rows) {
      ++num_stages;
      if (stage == 8) return;  // before the final norm: not recorded
      const int64_t golden_row = stage == 9 ? 8 : stage;
      const auto last_row = rows.subspan(rows.size() - 128);
      for (size_t i = 0; i < 128; ++i) {
        const float expected = hidden[static_cast<size_t>(golden_row) * 128 + i];
        worst = std::max<double>(worst, std::fabs(last_row[i] - expected));
        ASSERT_NEAR(last_row[i], expected, 1e-3) << tag << " stage " << stage;
      }
    });
    EXPECT_EQ(num_stages, 10);
  }
  std::printf("largest |hidden - golden| = %.2e\n", worst);
}

TEST(DecoderGolden, GreedyTokensTeacherForced) {
  const Goldens goldens;
  Model model;
  int num_steps = 0, num_equal = 0;
  for (const std::string& tag : kTags) {
    const auto ids = goldens.read<int32_t>(tag + ".ids");
    const auto greedy = goldens.read<int32_t>(tag + ".greedy");
    const auto gaps = goldens.read<float>(tag + ".greedy_gap");
    std::vector<float> logits = model.forward(ids, 0, AttentionForm::kExpanded);
    for (size_t step = 0; step < greedy.size(); ++step) {
      const auto row = std::span(logits).last(model.vocab_size());
      const auto best = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      ++num_steps;
      num_equal += best == greedy[step] ? 1 : 0;
      if (gaps[step] >= 2 * kLogitTolerance) {
        ASSERT_EQ(best, greedy[step]) << tag << " step " << step;
      }
      logits =
          model.forward(std::span(&greedy[step], 1), static_cast<int64_t>(ids.size() + step), AttentionForm::kAbsorbed);
    }
  }
  std::printf("greedy tokens equal at %d of %d steps\n", num_equal, num_steps);
  EXPECT_GE(num_equal, num_steps - 1);  // one recorded gap is below twice the tolerance
}

TEST(DecoderGolden, PerplexityWindows) {
  const Goldens goldens;
  Model model;
  const auto ids = goldens.read<int32_t>("ppl.ids");  // [32][513]
  const auto expected = goldens.read<float>("ppl.nll");
  double worst = 0, sum = 0;
  for (size_t window = 0; window < 32; ++window) {
    const auto window_ids = std::span(ids).subspan(window * 513, 513);
    const auto logits = model.forward(window_ids.first(512), 0, AttentionForm::kExpanded);
    double nll = 0;
    for (size_t i = 0; i < 512; ++i) {
      const auto row = std::span(logits).subspan(i * model.vocab_size(), model.vocab_size());
      double total = 0;
      for (const float logit : row) total += std::exp(static_cast<double>(logit));
      nll += std::log(total) - row[static_cast<size_t>(window_ids[i + 1])];
    }
    nll /= 512;
    sum += nll;
    worst = std::max(worst, std::fabs(nll - static_cast<double>(expected[window])));
    ASSERT_NEAR(nll, expected[window], 1e-4) << "window " << window;
  }
  std::printf("largest |nll - golden| = %.2e, perplexity %.3f\n", worst, std::exp(sum / 32));
  EXPECT_NEAR(std::exp(sum / 32), 41.301, 0.005);
}

TEST(Decoder, ReferenceOpsAgree) {
  const Goldens goldens;
  const auto ids = goldens.read<int32_t>("chat1.ids");
  Model fast, plain(OpBackend::kReference);
  const auto expected = plain.forward(ids, 0, AttentionForm::kExpanded);
  const auto logits = fast.forward(ids, 0, AttentionForm::kExpanded);
  for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], expected[i], kLogitTolerance);
}

TEST(Decoder, ChunksGiveTheSameBits) {
  const Goldens goldens;
  Model model;
  const auto ids = goldens.read<int32_t>("ppl.ids");
  const auto prompt = std::span(ids).first(130);
  for (const AttentionForm form : {AttentionForm::kExpanded, AttentionForm::kAbsorbed}) {
    const auto whole = model.forward(prompt, 0, form);
    for (const size_t chunk : {1, 7, 64}) {
      for (size_t first = 0; first < prompt.size(); first += chunk) {
        const auto part = prompt.subspan(first, std::min(chunk, prompt.size() - first));
        const auto logits = model.forward(part, static_cast<int64_t>(first), form);
        ASSERT_EQ(std::memcmp(logits.data(), whole.data() + first * model.vocab_size(), logits.size() * sizeof(float)),
                  0)
            << "chunk " << chunk << " at " << first;
      }
    }
  }
}

}  // namespace
}  // namespace gimbal
