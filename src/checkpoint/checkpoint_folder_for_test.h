// Small checkpoints in a temporary folder, and ways to damage them. For tests only.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "checkpoint/safetensors_reader.h"
#include "checkpoint/synthetic_checkpoint.h"
#include "checkpoint/weight_index.h"

namespace gimbal {

// Three layers (the first dense), four experts, hidden size 64; `quantization_config` is set by the writer.
inline constexpr std::string_view kTinyConfig = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "vocab_size": 96, "hidden_size": 64,
  "num_hidden_layers": 3, "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_routed_experts": 4, "n_shared_experts": 1,
  "num_experts_per_tok": 2, "moe_intermediate_size": 32, "intermediate_size": 128, "num_attention_heads": 2,
  "num_key_value_heads": 2, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
  "v_head_dim": 16, "hidden_act": "silu", "rms_norm_eps": 1e-06, "rope_theta": 50000.0, "rope_scaling": null,
  "max_position_embeddings": 512, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1,
  "norm_topk_prob": true, "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 0, "attention_bias": false,
  "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3, "torch_dtype": "bfloat16"})";

struct TestTensor {
  std::string name;
  DataType data_type = DataType::kBFloat16;
  std::vector<int64_t> shape;
  std::string bytes;
};

// A temporary folder that holds a checkpoint in `path()` and goes away with the object.
class CheckpointFolder {
 public:
  CheckpointFolder() {
    root_ = std::filesystem::temp_directory_path() /
            fmt::format("gimbal_checkpoint_test.{}.{}", getpid(), static_cast<void*>(this));
    std::filesystem::create_directories(root_);
  }
  ~CheckpointFolder() { std::filesystem::remove_all(root_); }
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  std::filesystem::path path() const { return root_ / "model"; }
  std::filesystem::path root() const { return root_; }

  // Writes the tiny model in two or more shards; false with a message when that fails.
  Result<SyntheticCheckpoint> synthesize(std::string quantization = "int4",
                                         std::string_view config = kTinyConfig) const {
    SyntheticCheckpointArgs args;
    args.config_text = config;
    args.quantization = std::move(quantization);
    args.seed = 7;
    args.shard_bytes = 60'000;
    args.output = path();
    return write_synthetic_checkpoint(args);
  }

  std::string read(const std::string& file) const {
    std::ostringstream text;
    text << std::ifstream(path() / file, std::ios::binary).rdbuf();
    return text.str();
  }
  void write(const std::string& file, std::string_view text) const {
    std::ofstream(path() / file, std::ios::binary) << text;
  }

  std::vector<std::string> shards() const { return read_weight_index(path()).value().shards; }

  std::vector<TestTensor> read_shard(const std::string& file) const {
    const std::string text = read(file);
    std::vector<TestTensor> tensors;
    const std::vector<SafetensorsEntry> entries = read_safetensors_header(path() / file).value();
    for (const SafetensorsEntry& entry : entries) {
      tensors.push_back({entry.name, entry.data_type, entry.shape, text.substr(entry.begin, entry.bytes)});
    }
    return tensors;
  }

  void write_shard(const std::string& file, const std::vector<TestTensor>& tensors) const {
    boost::json::object header;
    std::string data;
    for (const TestTensor& tensor : tensors) {
      header[tensor.name] = {{"dtype", safetensors_name(tensor.data_type)},
                             {"shape", boost::json::array(tensor.shape.begin(), tensor.shape.end())},
                             {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
      data += tensor.bytes;
    }
    const std::string text = boost::json::serialize(header);
    std::string length;
    for (int i = 0; i < 8; ++i) length += static_cast<char>((text.size() >> (8 * i)) & 0xff);
    write(file, length + text + data);
  }

  // Calls `edit` with every tensor of every shard and rewrites the shards; tensors for which it returns false are
  // dropped.
  void edit_tensors(const std::function<bool(TestTensor&)>& edit) const {
    for (const std::string& file : shards()) {
      std::vector<TestTensor> kept;
      for (TestTensor& tensor : read_shard(file)) {
        if (edit(tensor)) kept.push_back(std::move(tensor));
      }
      write_shard(file, kept);
    }
  }

  void add_tensor(const std::string& file, TestTensor tensor) const {
    std::vector<TestTensor> tensors = read_shard(file);
    tensors.push_back(std::move(tensor));
    write_shard(file, tensors);
  }

  // The shard that holds a tensor.
  std::string shard_of(const std::string& name) const { return read_weight_index(path()).value().shard_of.at(name); }

  void edit_index(const std::function<void(boost::json::object& weight_map)>& edit) const {
    boost::json::value document = boost::json::parse(read(kIndexFileName));
    edit(document.at("weight_map").as_object());
    write(kIndexFileName, boost::json::serialize(document));
  }

  void edit_config(const std::function<void(boost::json::object& config)>& edit) const {
    boost::json::value document = boost::json::parse(read("config.json"));
    edit(document.as_object());
    write("config.json", boost::json::serialize(document));
  }

 private:
  std::filesystem::path root_;
};

}  // namespace gimbal
