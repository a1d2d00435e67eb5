#include "cli/synth_command.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/byte_size.h"
#include "base/file_text.h"
#include "base/machine_limits.h"
#include "checkpoint/synthetic_checkpoint.h"
#include "cli/command_error.h"
#include "cli/progress_bar.h"

namespace gimbal {
namespace {

Result<SyntheticCheckpointArgs> read_arguments(const Settings& settings) {
  if (settings.model_config.empty()) {
    return fail(
        Error::invalid("--model-config FILE is needed: the config.json whose dimensions the checkpoint shall have.",
                       "--model-config"));
  }
  if (settings.output.empty()) {
    return fail(Error::invalid("--output DIR is needed: the folder that shall hold the checkpoint.", "--output"));
  }
  std::filesystem::path config_path = settings.model_config;
  std::error_code code;
  if (std::filesystem::is_directory(config_path, code)) config_path /= "config.json";
  SyntheticCheckpointArgs args;
  GIMBAL_ASSIGN_OR_RETURN(args.config_text, read_file_text(config_path));
  if (!settings.quantization.empty()) args.quantization = settings.quantization;
  args.seed = static_cast<uint64_t>(settings.seed);
  if (settings.shard_bytes > 0) args.shard_bytes = static_cast<uint64_t>(settings.shard_bytes);
  args.num_threads = settings.num_threads > 0 ? static_cast<int>(settings.num_threads) : read_machine_limits().num_cpus;
  args.output = settings.output;
  args.tokenizer_dir = settings.tokenizer_path;
  return args;
}

Status synthesize(const Settings& settings) {
  GIMBAL_ASSIGN_OR_RETURN(SyntheticCheckpointArgs args, read_arguments(settings));
  std::optional<ProgressBar> bar;
  uint64_t last_done = 0;
  args.on_progress = [&](uint64_t done, uint64_t total) {
    if (!bar) bar.emplace("writing", static_cast<int64_t>(total), "bytes");
    bar->advance(static_cast<int64_t>(done - last_done));
    last_done = done;
  };
  const auto written = write_synthetic_checkpoint(args);
  if (bar) bar->finish();
  if (!written) return fail(written.error());
  if (settings.print_json) {
    const boost::json::object result = {{"output", settings.output},       {"quantization", args.quantization},
                                        {"seed", settings.seed},           {"shards", written->num_shards},
                                        {"tensors", written->num_tensors}, {"tensor_bytes", written->tensor_bytes}};
    fmt::print("{}\n", boost::json::serialize(result));
  } else {
    fmt::print("{}: {} tensors in {} shards, {} ({}), seed {}\n", settings.output, written->num_tensors,
               written->num_shards, format_bytes(written->tensor_bytes), args.quantization, settings.seed);
  }
  return {};
}

}  // namespace

int run_synth_command(const Settings& settings) { return report_status("synth", synthesize(settings)); }

}  // namespace gimbal
