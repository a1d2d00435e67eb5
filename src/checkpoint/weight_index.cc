#include "checkpoint/weight_index.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <span>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file_text.h"
#include "base/git_lfs_pointer.h"
#include "base/json_reading.h"

namespace gimbal {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr size_t kMaxNamedFiles = 5;

// "a, b, c and 4 more".
std::string list_files(std::span<const std::string> names) {
  const size_t count = std::min(names.size(), kMaxNamedFiles);
  const std::string text = fmt::format("{}", fmt::join(names.first(count), ", "));
  return count == names.size() ? text : fmt::format("{} and {} more", text, names.size() - count);
}

Result<std::vector<std::string>> list_folder(const std::filesystem::path& model_dir) {
  std::error_code code;
  if (!std::filesystem::exists(model_dir, code)) {
    return fail(Error::invalid(fmt::format("The model folder {} does not exist.", model_dir.string()), "--model-path"));
  }
  if (!std::filesystem::is_directory(model_dir, code)) {
    return fail(Error::invalid(
        fmt::format(
            "{} is not a folder; --model-path names the folder that holds config.json and the *.safetensors files.",
            model_dir.string()),
        "--model-path"));
  }
  std::vector<std::string> names;
  std::filesystem::directory_iterator it(model_dir, code);
  for (; !code && it != std::filesystem::directory_iterator(); it.increment(code)) {
    names.push_back(it->path().filename().string());
  }
  if (code) {
    return fail(Error::invalid(
        fmt::format("The model folder {} cannot be listed: {}.", model_dir.string(), code.message()), "--model-path"));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status check_shard_name(std::string_view tensor, std::string_view shard, std::string_view index_path) {
  const bool is_plain = !shard.empty() && shard.find('/') == std::string_view::npos &&
                        shard.find('\\') == std::string_view::npos && shard.find('\0') == std::string_view::npos &&
                        shard.ends_with(kSuffix);
  if (is_plain) return {};
  return fail(Error::invalid(fmt::format(
      "{}: weight_map places tensor {} in '{}', which is not the plain name of a *.safetensors file in the same "
      "folder. Paths are not followed; correct the index or download it again.",
      index_path, tensor, shard.substr(0, 200))));
}

// Fills shard_of and returns the set of files that the index names.
Result<std::set<std::string>> read_index_file(const std::filesystem::path& path, WeightIndex& index) {
  GIMBAL_ASSIGN_OR_RETURN(const std::string text, read_file_text(path));
  if (const auto pointer = parse_git_lfs_pointer(text)) {
    return fail(Error::invalid(describe_git_lfs_pointer(path.string(), text.size(), *pointer)));
  }
  GIMBAL_ASSIGN_OR_RETURN(const boost::json::value document, parse_json(text, path.string()));
  const boost::json::object* root = document.if_object();
  const boost::json::value* entry = root == nullptr ? nullptr : root->if_contains("weight_map");
  const boost::json::object* weight_map = entry == nullptr ? nullptr : entry->if_object();
  if (weight_map == nullptr || weight_map->empty()) {
    return fail(
        Error::invalid(fmt::format("{} must be a JSON object whose weight_map gives a file name for every tensor; {}. "
                                   "Download the index again.",
                                   path.string(),
                                   root == nullptr         ? "it is not an object"
                                   : entry == nullptr      ? "weight_map is missing"
                                   : weight_map == nullptr ? "weight_map is not an object"
                                                           : "weight_map is empty")));
  }
  std::set<std::string> shards;
  index.shard_of.reserve(weight_map->size());
  for (const auto& [tensor, value] : *weight_map) {
    const boost::json::string* shard = value.if_string();
    if (shard == nullptr) {
      return fail(
          Error::invalid(fmt::format("{}: weight_map must give a file name for tensor {}, found another type of value.",
                                     path.string(), std::string_view(tensor))));
    }
    GIMBAL_RETURN_IF_ERROR(check_shard_name(tensor, *shard, path.string()));
    shards.emplace(*shard);
    index.shard_of.emplace(tensor, *shard);
  }
  return shards;
}

// Without an index: one file, or a complete numbered set.
Status choose_shards(const std::filesystem::path& model_dir, const std::vector<std::string>& files,
                     WeightIndex& index) {
  if (std::find(files.begin(), files.end(), "model.safetensors") != files.end()) {
    index.shards = {"model.safetensors"};
    return {};
  }
  std::set<int64_t> counts;
  for (const std::string& file : files) {
    if (file.starts_with("model-") && announced_shard_count(file) > 0) {
      counts.insert(announced_shard_count(file));
      index.shards.push_back(file);
    }
  }
  if (counts.empty()) {
    return fail(Error::invalid(
        fmt::format("{} holds no weights: neither {} nor model.safetensors nor model-00001-of-N.safetensors "
                    "is there (*.safetensors files found: {}). Download the checkpoint, or use "
                    "--load-format dummy to run without weights.",
                    model_dir.string(), kIndexFileName, files.empty() ? "none" : list_files(files)),
        "--model-path"));
  }
  if (counts.size() > 1) {
    return fail(
        Error::invalid(fmt::format("{} holds shards of different splits ({} shards) and no {} that says which counts. "
                                   "Add the index or remove the files of the other split.",
                                   model_dir.string(), fmt::join(counts, " and "), kIndexFileName),
                       "--model-path"));
  }
  std::vector<std::string> absent;
  for (int64_t i = 1; i <= *counts.begin() && absent.size() < 100000; ++i) {
    std::string name = fmt::format("model-{:05}-of-{:05}{}", i, *counts.begin(), kSuffix);
    if (!std::binary_search(index.shards.begin(), index.shards.end(), name)) absent.push_back(std::move(name));
  }
  if (!absent.empty()) {
    return fail(Error::invalid(
        fmt::format("{} has no {} and {} of its {} shards are missing: {}. Download them again.", model_dir.string(),
                    kIndexFileName, absent.size(), *counts.begin(), list_files(absent)),
        "--model-path"));
  }
  index.notes.push_back(fmt::format("{} is missing; the complete set of {} shards is used as it stands.",
                                    kIndexFileName, index.shards.size()));
  return {};
}

}  // namespace

int64_t announced_shard_count(std::string_view file_name) {
  constexpr std::string_view kOf = "-of-";
  const size_t at = file_name.rfind(kOf);
  if (at == std::string_view::npos || !file_name.ends_with(kSuffix)) return 0;
  int64_t count = 0;
  const char* end = file_name.data() + file_name.size() - kSuffix.size();
  const auto [rest, code] = std::from_chars(file_name.data() + at + kOf.size(), end, count);
  return code == std::errc() && rest == end && count > 0 ? count : 0;
}

Result<WeightIndex> read_weight_index(const std::filesystem::path& model_dir) {
  GIMBAL_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_folder(model_dir));
  std::vector<std::string> files;
  for (const std::string& name : names) {
    if (name.ends_with(kSuffix)) files.push_back(name);
  }
  WeightIndex index;
  index.has_index_file = std::binary_search(names.begin(), names.end(), kIndexFileName);
  if (index.has_index_file) {
    GIMBAL_ASSIGN_OR_RETURN(const std::set<std::string> named, read_index_file(model_dir / kIndexFileName, index));
    for (const std::string& shard : named) {
      const bool exists = std::binary_search(files.begin(), files.end(), shard);
      (exists ? index.shards : index.missing_shards).push_back(shard);
    }
  } else {
    GIMBAL_RETURN_IF_ERROR(choose_shards(model_dir, files, index));
  }
  for (const std::string& file : files) {
    if (!std::binary_search(index.shards.begin(), index.shards.end(), file)) index.unused_shards.push_back(file);
  }
  if (!index.unused_shards.empty()) {
    index.notes.push_back(fmt::format("{} files that {} does not name were ignored: {}.", index.unused_shards.size(),
                                      index.has_index_file ? kIndexFileName : "this kind of checkpoint",
                                      list_files(index.unused_shards)));
  }
  return index;
}

}  // namespace gimbal
