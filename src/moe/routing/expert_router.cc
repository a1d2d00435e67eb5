#include "moe/routing/expert_router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace gimbal {
namespace {

constexpr float kDropped = -std::numeric_limits<float>::infinity();

// Scratch of one token.
struct Scores {
  std::vector<float> probability;  // [num_experts]
  std::vector<float> selection;    // [num_experts]
};

// -infinity for the selections of all but the best groups.
void drop_groups(const RouterArgs& args, std::vector<float>& selection) {
  const int64_t group_size = args.num_experts / args.num_groups;
  std::vector<std::pair<float, int64_t>> groups;
  for (int64_t group = 0; group < args.num_groups; ++group) {
    float first = kDropped, second = kDropped;
    for (int64_t i = group * group_size; i < (group + 1) * group_size; ++i) {
      const float value = selection[static_cast<size_t>(i)];
      if (value > first) {
        second = first;
        first = value;
      } else if (value > second) {
        second = value;
      }
    }
    groups.emplace_back(group_size > 1 ? first + second : first, group);
  }
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
  });
  for (size_t rank = static_cast<size_t>(args.num_topk_groups); rank < groups.size(); ++rank) {
    const auto begin = selection.begin() + groups[rank].second * group_size;
    std::fill(begin, begin + group_size, kDropped);
  }
}

// The highest remaining selection, ties to the lower index. Not-a-number never wins while a number is left.
int64_t take_best(std::vector<float>& selection, std::vector<bool>& is_taken) {
  int64_t best = -1;
  for (size_t i = 0; i < selection.size(); ++i) {
    if (is_taken[i]) continue;
    if (best < 0 || selection[i] > selection[static_cast<size_t>(best)]) best = static_cast<int64_t>(i);
  }
  is_taken[static_cast<size_t>(best)] = true;
  return best;
}

void route_token(const RouterArgs& args, int64_t token, Scores& scores, TokenMajorBatch& tokens) {
  const float* z = args.scores + token * args.num_experts;
  for (int64_t i = 0; i < args.num_experts; ++i) {
    const auto at = static_cast<size_t>(i);
    scores.probability[at] = 1.0f / (1.0f + std::exp(-z[i]));
    scores.selection[at] = scores.probability[at] + args.bias[i];
  }
  if (args.num_groups > 1) drop_groups(args, scores.selection);
  std::vector<bool> is_taken(scores.selection.size(), false);
  float sum = 0.0f;
  const int64_t first_pair = token * args.experts_per_token;
  for (int64_t slot = 0; slot < args.experts_per_token; ++slot) {
    const int64_t expert = take_best(scores.selection, is_taken);
    const float probability = scores.probability[static_cast<size_t>(expert)];
    tokens.expert_ids[static_cast<size_t>(first_pair + slot)] = static_cast<int32_t>(expert);
    tokens.weights[static_cast<size_t>(first_pair + slot)] = probability;
    sum += probability;
  }
  for (int64_t slot = 0; slot < args.experts_per_token; ++slot) {
    float& weight = tokens.weights[static_cast<size_t>(first_pair + slot)];
    if (args.normalize) weight /= sum + 1e-20f;
    weight *= args.scaling_factor;
  }
}

void prepare(const RouterArgs& args, TokenMajorBatch& tokens) {
  GIMBAL_CHECK(args.bias != nullptr);
  GIMBAL_CHECK_LE(args.experts_per_token, args.num_experts);
  GIMBAL_CHECK_EQ(args.num_experts % args.num_groups, 0);
  tokens.num_tokens = args.num_tokens;
  tokens.experts_per_token = args.experts_per_token;
  tokens.expert_ids.resize(static_cast<size_t>(args.num_tokens * args.experts_per_token));
  tokens.weights.resize(tokens.expert_ids.size());
}

}  // namespace

void route(const RouterArgs& args, TokenMajorBatch& tokens) {
  prepare(args, tokens);
  Scores scores{std::vector<float>(static_cast<size_t>(args.num_experts)),
                std::vector<float>(static_cast<size_t>(args.num_experts))};
  for (int64_t token = 0; token < args.num_tokens; ++token) route_token(args, token, scores, tokens);
}

void route_reference(const RouterArgs& args, TokenMajorBatch& tokens) {
  prepare(args, tokens);
  const auto num_experts = static_cast<size_t>(args.num_experts);
  const int64_t group_size = args.num_experts / args.num_groups;
  for (int64_t token = 0; token < args.num_tokens; ++token) {
    std::vector<double> probability(num_experts), selection(num_experts);
    for (size_t i = 0; i < num_experts; ++i) {
      probability[i] =
          1.0 / (1.0 + std::exp(-static_cast<double>(args.scores[static_cast<size_t>(token * args.num_experts) + i])));
      selection[i] = probability[i] + args.bias[i];
    }
    std::vector<double> group_scores(static_cast<size_t>(args.num_groups));
    for (int64_t group = 0; group < args.num_groups; ++group) {
      std::vector<double> members(selection.begin() + group * group_size, selection.begin() + (group + 1) * group_size);
      std::sort(members.rbegin(), members.rend());
      group_scores[static_cast<size_t>(group)] = members[0] + (members.size() > 1 ? members[1] : 0.0);
    }
    std::vector<int64_t> groups(group_scores.size());
    std::iota(groups.begin(), groups.end(), 0);
    std::stable_sort(groups.begin(), groups.end(), [&](int64_t a, int64_t b) {
      return group_scores[static_cast<size_t>(a)] > group_scores[static_cast<size_t>(b)];
    });
    std::vector<int32_t> order;
    for (int64_t rank = 0; rank < args.num_topk_groups; ++rank) {
      for (int64_t i = 0; i < group_size; ++i)
        order.push_back(static_cast<int32_t>(groups[static_cast<size_t>(rank)] * group_size + i));
    }
    std::sort(order.begin(), order.end());
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return selection[static_cast<size_t>(a)] > selection[static_cast<size_t>(b)];
    });
    double sum = 1e-20;
    for (int64_t slot = 0; slot < args.experts_per_token; ++slot)
      sum += probability[static_cast<size_t>(order[static_cast<size_t>(slot)])];
    for (int64_t slot = 0; slot < args.experts_per_token; ++slot) {
      const auto pair = static_cast<size_t>(token * args.experts_per_token + slot);
      tokens.expert_ids[pair] = order[static_cast<size_t>(slot)];
      const double weight = probability[static_cast<size_t>(order[static_cast<size_t>(slot)])];
      tokens.weights[pair] = static_cast<float>((args.normalize ? weight / sum : weight) * args.scaling_factor);
    }
  }
}

}  // namespace gimbal
