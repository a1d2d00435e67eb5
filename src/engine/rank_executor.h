// RankExecutor: all ranks of one engine, seen from rank 0. Gives every rank the identical plan and brings results back.
//
// Ranks are threads of this process (they share the checkpoint) or MPI processes; the code above comm/ is the same.
// Rank 0 computes on a thread of its own, so submit() returns at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "comm/host_comm.h"
#include "comm/in_process_world.h"
#include "engine/execution_plan.h"
#include "engine/model_runner.h"
#include "engine/rank_thread.h"
#include "model_config/model_config.h"
#include "settings/settings.h"

namespace gimbal {

class MpiSession;

// What was decided and measured while loading; printed at start and shown by /server_info.
struct EngineDescription {
  std::string layout;  // canonical name
  std::string ranks;   // "one rank", "8 threads", "8 processes"
  int64_t num_ranks = 1;
  int64_t num_dp_groups = 1;
  int64_t context_length = 0;  // tokens of prompt and answer together
  int64_t kv_tokens = 0;       // tokens that the page pool of a DP group holds
  int64_t page_size = 0;
  int64_t max_running = 0;      // per DP group
  int64_t tokens_per_step = 0;  // per DP group
  int64_t num_threads = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t workspace_bytes = 0;
  std::string op_backend;
  std::string attention_backend;
  std::string moe_runner_backend;
  std::string moe_a2a_backend;
  double load_seconds = 0;
  std::vector<std::string> notes;
};

// What every rank of a run needs; one copy per process.
struct LoadedModel {
  ModelConfig config;
  ExecutionPlan plan;
  std::shared_ptr<const Checkpoint> checkpoint;
};

class RankExecutor {
 public:
  // Validates and plans, then loads every rank. Blocking. `mpi` is nullptr for ranks as threads; else this is its rank
  // 0, and the other processes are in serve_rank().
  static Result<std::unique_ptr<RankExecutor>> start(const Settings& settings, const ModelConfig& config,
                                                     MpiSession* mpi);
  // Tells the ranks to stop and joins them.
  ~RankExecutor();

  const EngineDescription& description() const { return description_; }
  const ExecutionPlan& plan() const { return model_->plan; }
  const ModelConfig& config() const { return model_->config; }

  // Starts a step on every rank; at most plan().num_in_flight unfinished ones. After an error nothing can be submitted.
  Status submit(const StepPlan& plan);
  // The result of the oldest unfinished step.
  Result<StepResult> wait();
  int64_t num_in_flight() const { return num_in_flight_; }
  // submit and wait.
  Result<StepResult> run(const StepPlan& plan);

  // What every rank has counted: [num_ranks]. Nothing may be in flight.
  Result<std::vector<RankReport>> reports();

  // Grows while ranks work: of all ranks that are threads, of rank 0 among processes. From any thread.
  uint64_t progress() const;

 private:
  RankExecutor() = default;
  void start_thread_ranks(std::chrono::milliseconds timeout);
  void run_thread_rank(int rank);

  std::unique_ptr<LoadedModel> model_;
  EngineDescription description_;
  std::shared_ptr<InProcessWorld> world_;  // ranks as threads
  std::unique_ptr<HostComm> host_;
  std::unique_ptr<ModelRunner> runner_;  // of rank 0
  int64_t num_in_flight_ = 0;
  std::vector<std::thread> threads_;         // ranks 1, 2, ...
  std::unique_ptr<RankThread> rank_thread_;  // of rank 0
};

// The life of a rank other than 0: loads, then executes what rank 0 sends until it says stop. Returns the error that
// ended the world, if one did. Under MPI, called by the processes of the other ranks.
Status serve_rank(const Settings& settings, const ModelConfig& config, MpiSession& mpi);

}  // namespace gimbal
