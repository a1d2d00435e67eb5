#include "engine/rank_executor.h"

#include <chrono>
#include <exception>
#include <iterator>

#include <fmt/format.h>

#include "base/machine_limits.h"
#include "engine/mpi_ranks.h"
#include "engine/rank_worker.h"

namespace gimbal {
namespace {

std::chrono::milliseconds timeout_of(const Settings& settings) {
  return std::chrono::milliseconds(static_cast<int64_t>(settings.comm_timeout_s * 1000));
}

Result<Checkpoint> open_checkpoint(const Settings& settings, const ModelConfig& config, int num_threads) {
  if (settings.load_format == "dummy")
    return Checkpoint::make_dummy(config, static_cast<uint64_t>(settings.weight_seed), num_threads);
  return Checkpoint::open(settings.model_path, config);
}

EngineDescription describe(const LoadedModel& model, bool are_threads) {
  const ExecutionPlan& plan = model.plan;
  EngineDescription description{.layout = layout_name(plan.layout),
                                .ranks = plan.layout.is_single() ? "one rank"
                                                                 : fmt::format("{} {}", plan.layout.world_size(),
                                                                               are_threads ? "threads" : "processes"),
                                .num_ranks = plan.layout.world_size(),
                                .num_dp_groups = plan.layout.attention_dp,
                                .context_length = plan.memory.context_length,
                                .kv_tokens = plan.memory.num_pages * plan.page_size,
                                .page_size = plan.page_size,
                                .max_running = plan.memory.max_running,
                                .tokens_per_step = plan.memory.tokens_per_step,
                                .num_threads = plan.num_threads,
                                .weight_bytes = plan.memory.weight_bytes,
                                .kv_bytes = plan.memory.kv_bytes,
                                .workspace_bytes = plan.memory.workspace_bytes,
                                .op_backend = std::string(plan.ops.name),
                                .attention_backend = std::string(plan.attention.name),
                                .moe_runner_backend = std::string(plan.experts.name),
                                .moe_a2a_backend = std::string(name_of(plan.layout.exchange)),
                                .load_seconds = 0,
                                .notes = model.config.notes};
  auto& notes = description.notes;
  if (!plan.layout.is_single()) notes.push_back(fmt::format("layout: {} ({})", description.layout, description.ranks));
  notes.insert(notes.end(), model.checkpoint->notes().begin(), model.checkpoint->notes().end());
  notes.insert(notes.end(), plan.notes.begin(), plan.notes.end());
  return description;
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> open_model(const Settings& settings, const ModelConfig& config,
                                                const RankProcesses& processes) {
  GIMBAL_RETURN_IF_ERROR(check_requested_layout(settings, config, processes));
  auto model = std::make_unique<LoadedModel>();
  model->config = config;
  const int num_threads =
      settings.num_threads > 0 ? static_cast<int>(settings.num_threads) : read_machine_limits().num_cpus;
  if (settings.load_format == "dummy") {  // memory is taken at once, so ask first
    GIMBAL_RETURN_IF_ERROR(make_execution_plan(settings, config, make_weight_plan(config), processes));
  }
  GIMBAL_ASSIGN_OR_RETURN(Checkpoint checkpoint, open_checkpoint(settings, config, num_threads));
  model->checkpoint = std::make_shared<const Checkpoint>(std::move(checkpoint));
  GIMBAL_ASSIGN_OR_RETURN(model->plan, make_execution_plan(settings, config, model->checkpoint->plan(), processes));
  return model;
}

Result<std::unique_ptr<RankExecutor>> RankExecutor::start(const Settings& settings, const ModelConfig& config,
                                                          MpiSession* mpi) {
  const auto start_time = std::chrono::steady_clock::now();
  std::unique_ptr<RankExecutor> executor(new RankExecutor());
  if (mpi != nullptr) executor->host_ = make_mpi_host_comm(*mpi);
  Result<std::unique_ptr<LoadedModel>> opened = open_model(settings, config, rank_processes(mpi));
  if (mpi != nullptr) {
    Status own;
    if (!opened) own = fail(opened.error());
    GIMBAL_RETURN_IF_ERROR(agree(*executor->host_, own));
  } else if (!opened) {
    return fail(opened.error());
  }
  executor->model_ = std::move(*opened);
  const LoadedModel& model = *executor->model_;
  RankComms comms;
  if (mpi != nullptr) {
    GIMBAL_ASSIGN_OR_RETURN(comms, make_mpi_comms(*mpi, model.plan.layout));
  } else {
    executor->start_thread_ranks(timeout_of(settings));
    comms = make_thread_comms(*executor->world_, model.plan.layout, 0);
  }
  Result<std::unique_ptr<ModelRunner>> runner =
      ModelRunner::load({.plan = &model.plan, .config = &model.config, .checkpoint = model.checkpoint, .rank = 0},
                        *executor->host_, std::move(comms));
  if (!runner) return fail(runner.error());
  executor->runner_ = std::move(*runner);
  executor->rank_thread_ = std::make_unique<RankThread>(
      *executor->runner_, [host = executor->host_.get()](const Error& error) { host->raise(error); });
  executor->description_ = describe(model, mpi == nullptr);
  executor->description_.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_time).count();
  return executor;
}

void RankExecutor::start_thread_ranks(std::chrono::milliseconds timeout) {
  const auto num_ranks = static_cast<int>(model_->plan.layout.world_size());
  world_ = InProcessWorld::create(num_ranks, timeout);
  host_ = world_->host_comm(0);
  for (int rank = 1; rank < num_ranks; ++rank) {
    threads_.emplace_back([this, rank] { run_thread_rank(rank); });
  }
}

void RankExecutor::run_thread_rank(int rank) {
  try {
    const std::unique_ptr<HostComm> host = world_->host_comm(rank);
    const Status status = run_rank(*model_, rank, *host, make_thread_comms(*world_, model_->plan.layout, rank));
    if (!status) world_->raise(status.error());
  } catch (const std::exception& exception) {
    world_->raise(Error::failed(
        fmt::format("Rank {} of {} failed: {}.", rank, model_->plan.layout.world_size(), exception.what())));
  }
}

RankExecutor::~RankExecutor() {
  rank_thread_.reset();
  if (host_) {
    const auto stop = std::make_shared<const std::string>(encode_command(RankCommand::kStop));
    for (int peer = 1; peer < host_->size(); ++peer) (void)host_->send(peer, stop);
  }
  for (std::thread& thread : threads_) thread.join();
}

Status RankExecutor::submit(const StepPlan& plan) {
  if (host_->size() > 1) {
    const auto message = std::make_shared<const std::string>(encode_step(plan));
    for (int peer = 1; peer < host_->size(); ++peer) GIMBAL_RETURN_IF_ERROR(host_->send(peer, message));
  }
  rank_thread_->submit(std::make_shared<const StepPlan>(plan));
  ++num_in_flight_;
  return {};
}

Result<StepResult> RankExecutor::wait() {
  const ParallelLayout& layout = plan().layout;
  StepResult whole;
  for (int64_t group = 0; group < layout.attention_dp; ++group) {
    const int64_t rank = reporting_rank(layout, group);
    StepResult part;
    if (rank == 0) {
      GIMBAL_ASSIGN_OR_RETURN(part, rank_thread_->wait());
    } else {
      GIMBAL_ASSIGN_OR_RETURN(const HostMessage message, host_->receive(static_cast<int>(rank), Patience::kTimeout));
      part = decode_result(*message);
    }
    whole.step = part.step;
    std::move(part.sequences.begin(), part.sequences.end(), std::back_inserter(whole.sequences));
  }
  --num_in_flight_;
  return whole;
}

Result<StepResult> RankExecutor::run(const StepPlan& plan) {
  GIMBAL_RETURN_IF_ERROR(submit(plan));
  return wait();
}

uint64_t RankExecutor::progress() const {
  const auto position = [](const CommState& state) {
    return state.step.load(std::memory_order_relaxed) * 4096 +
           static_cast<uint64_t>(state.layer.load(std::memory_order_relaxed) + 1);
  };
  if (!world_) return position(runner_->comm_state());
  uint64_t sum = 0;
  for (int rank = 0; rank < world_->size(); ++rank) sum += position(world_->state(rank));
  return sum;
}

Result<std::vector<RankReport>> RankExecutor::reports() {
  const auto ask = std::make_shared<const std::string>(encode_command(RankCommand::kReport));
  GIMBAL_ASSIGN_OR_RETURN(RankReport own, rank_thread_->report());
  std::vector<RankReport> reports;
  reports.push_back(std::move(own));
  for (int peer = 1; peer < host_->size(); ++peer) {
    GIMBAL_RETURN_IF_ERROR(host_->send(peer, ask));
    GIMBAL_ASSIGN_OR_RETURN(const HostMessage message, host_->receive(peer, Patience::kTimeout));
    reports.push_back(decode_report(*message));
  }
  return reports;
}

}  // namespace gimbal
