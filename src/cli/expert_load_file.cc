#include "cli/expert_load_file.h"

#include <fstream>

#include <fmt/format.h>

#include "parallel/expert_placement.h"

namespace gimbal {

Status check_expert_load_path(const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::binary | std::ios::app)) return {};
  return fail(Error::invalid(fmt::format("--expert-load-output {} cannot be written.", path), "--expert-load-output"));
}

Status write_expert_load(const std::string& path, const std::vector<RankReport>& reports) {
  std::vector<std::vector<uint64_t>> sum = reports.front().expert_load;
  for (size_t rank = 1; rank < reports.size(); ++rank) {
    for (size_t layer = 0; layer < sum.size(); ++layer) {
      for (size_t expert = 0; expert < sum[layer].size(); ++expert)
        sum[layer][expert] += reports[rank].expert_load[layer][expert];
    }
  }
  std::ofstream file(path, std::ios::binary);
  file << expert_load_json(sum) << '\n';
  file.close();
  if (file) return {};
  return fail(Error::failed(fmt::format("--expert-load-output {} could not be written.", path)));
}

}  // namespace gimbal
