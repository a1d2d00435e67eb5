#include "checkpoint/synthetic_checkpoint.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <system_error>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "base/byte_size.h"
#include "base/thread_team.h"
#include "checkpoint/quantized_config.h"
#include "checkpoint/shard_writer.h"
#include "checkpoint/weight_index.h"
#include "model_config/model_config.h"
#include "parallel/weight_plan.h"

namespace gimbal {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 6> kTokenizerFiles = {"tiktoken.model",      "tokenizer_config.json",
                                                        "tokenizer.json",      "generation_config.json",
                                                        "chat_template.jinja", "special_tokens_map.json"};

// Removes the folder that it created unless it was renamed.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {}
  ~TemporaryFolder() {
    std::error_code code;
    if (is_mine_) fs::remove_all(path_, code);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

  Status create() {
    std::error_code code;
    is_mine_ = fs::create_directory(path_, code);
    if (is_mine_) return {};
    return fail(Error::failed(fmt::format("The temporary folder {} cannot be created: {}.", path_.string(),
                                          code ? code.message() : std::string("it exists; remove it"))));
  }

  Status rename_to(const fs::path& target) {
    std::error_code code;
    fs::rename(path_, target, code);
    if (code) {
      return fail(Error::failed(
          fmt::format("{} cannot be renamed to {}: {}.", path_.string(), target.string(), code.message())));
    }
    is_mine_ = false;
    return {};
  }

 private:
  fs::path path_;
  bool is_mine_ = false;
};

Status check_output(const fs::path& output, uint64_t required_bytes) {
  std::error_code code;
  if (output.empty() || !output.has_filename())
    return fail(Error::invalid("--output must name a folder to create.", "--output"));
  if (fs::exists(output, code) && (!fs::is_directory(output, code) || !fs::is_empty(output, code) || code)) {
    return fail(Error::invalid(
        fmt::format("{} exists and is not an empty folder; nothing is overwritten. Choose another --output or "
                    "remove it.",
                    output.string()),
        "--output"));
  }
  fs::create_directories(output.parent_path(), code);
  const fs::space_info space = fs::space(output.parent_path(), code);
  if (code) {
    return fail(Error::invalid(fmt::format("The folder of {} cannot be used: {}.", output.string(), code.message()),
                               "--output"));
  }
  if (space.available < required_bytes) {
    return fail(Error::invalid(
        fmt::format("The checkpoint needs {} of disk, {} offers {}, {} are missing. Choose another --output or "
                    "smaller dimensions.",
                    format_bytes(required_bytes), output.parent_path().string(), format_bytes(space.available),
                    format_bytes(required_bytes - space.available)),
        "--output"));
  }
  return {};
}

Status write_text(const fs::path& path, std::string_view text) {
  std::ofstream stream(path, std::ios::binary);
  stream << text;
  stream.close();
  if (!stream) return fail(Error::failed(fmt::format("{} cannot be written; is the disk full?", path.string())));
  return {};
}

Status copy_tokenizer(const fs::path& from, const fs::path& to) {
  if (from.empty()) return {};
  bool has_any = false;
  for (const char* name : kTokenizerFiles) {
    std::error_code code;
    if (!fs::exists(from / name, code)) continue;
    has_any = true;
    fs::copy_file(from / name, to / name, code);
    if (code) {
      return fail(Error::failed(fmt::format("{} cannot be copied: {}.", (from / name).string(), code.message())));
    }
  }
  if (has_any) return {};
  return fail(
      Error::invalid(fmt::format("{} holds no tokenizer files (tiktoken.model, tokenizer_config.json).", from.string()),
                     "--tokenizer-path"));
}

using Shards = std::vector<std::vector<ShardTensor>>;

Shards cut_shards(const WeightPlan& plan, uint64_t shard_bytes, std::string_view prefix) {
  Shards shards(1);
  uint64_t used = 0;
  for (const PlannedWeight& weight : plan.weights) {
    for (size_t i = 0; i < weight.tensors.size(); ++i) {
      const uint64_t bytes = weight.tensors[i].bytes();
      if (used > 0 && used + bytes > shard_bytes) {
        shards.emplace_back();
        used = 0;
      }
      shards.back().push_back({&weight, i, std::string(prefix) + weight.tensors[i].name});
      used += bytes;
    }
  }
  // Larger elements first: then every tensor starts at a multiple of its element size.
  for (auto& shard : shards) {
    std::stable_sort(shard.begin(), shard.end(), [](const ShardTensor& a, const ShardTensor& b) {
      return size_of(a.weight->tensors[a.index].data_types.front()) >
             size_of(b.weight->tensors[b.index].data_types.front());
    });
  }
  return shards;
}

Status write_shards(const SyntheticCheckpointArgs& args, const fs::path& folder, const Shards& shards,
                    uint64_t total_bytes) {
  ThreadTeam team(std::max(args.num_threads, 1));
  uint64_t done = 0;
  ShardWriter writer(team, args.seed, [&](uint64_t bytes) {
    done += bytes;
    if (args.on_progress) args.on_progress(done, total_bytes);
  });
  boost::json::object weight_map;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    GIMBAL_RETURN_IF_ERROR(writer.write(folder / file, shards[i]));
    for (const ShardTensor& tensor : shards[i]) weight_map[tensor.stored_name] = file;
  }
  const boost::json::object index = {{"metadata", boost::json::object{{"total_size", total_bytes}}},
                                     {"weight_map", std::move(weight_map)}};
  return write_text(folder / kIndexFileName, boost::json::serialize(index));
}

}  // namespace

Result<SyntheticCheckpoint> write_synthetic_checkpoint(const SyntheticCheckpointArgs& args) {
  GIMBAL_ASSIGN_OR_RETURN(const std::string config_text, requantize_config(args.config_text, args.quantization));
  GIMBAL_ASSIGN_OR_RETURN(const ModelConfig config, parse_model_config(config_text));
  if (config.quantization.method == QuantizationConfig::Method::kInt4Group && config.quantization.num_bits != 4) {
    return fail(
        Error::invalid(fmt::format("The config asks for num_bits {}; only 4 is offered.", config.quantization.num_bits),
                       "--model-config"));
  }
  if (args.shard_bytes == 0) return fail(Error::invalid("--shard-bytes must be at least 1.", "--shard-bytes"));
  const WeightPlan plan = make_weight_plan(config);
  fs::path output = fs::absolute(args.output).lexically_normal();
  if (!output.has_filename()) output = output.parent_path();  // a trailing slash
  SyntheticCheckpoint result;
  result.tensor_bytes = plan.total_bytes;
  for (const PlannedWeight& weight : plan.weights) result.num_tensors += weight.tensors.size();
  constexpr uint64_t kBytesPerName = 512;  // a tensor's part of header and index
  GIMBAL_RETURN_IF_ERROR(check_output(output, plan.total_bytes + result.num_tensors * kBytesPerName));

  TemporaryFolder folder(output.string() + fmt::format(".partial-{}", getpid()));
  GIMBAL_RETURN_IF_ERROR(folder.create());
  GIMBAL_RETURN_IF_ERROR(copy_tokenizer(args.tokenizer_dir, folder.path()));
  const Shards shards = cut_shards(plan, args.shard_bytes, config.has_vision_part ? "language_model." : "");
  result.num_shards = shards.size();
  GIMBAL_RETURN_IF_ERROR(write_shards(args, folder.path(), shards, plan.total_bytes));
  GIMBAL_RETURN_IF_ERROR(write_text(folder.path() / "config.json", config_text));
  GIMBAL_RETURN_IF_ERROR(folder.rename_to(output));
  return result;
}

}  // namespace gimbal
