#include "cli/rank_supervisor.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "settings/environment.h"

namespace gimbal {
namespace {

// What the parent reacts to; blocked in it and waited for, so that no handler is needed.
sigset_t watched_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&signals, signal);
  return signals;
}

int exit_code_of(pid_t child, int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int signal = WTERMSIG(status);
  // mpirun ends the ranks of a job that has failed already with these; they are not the cause.
  if (signal == SIGTERM || signal == SIGINT) return 1;
  fmt::print(
      stderr,
      "gimbal: rank {} of {} (process {}) was killed by signal {} ({}); the job ends. If nobody did that by hand, "
      "the machine may be out of memory: see `dmesg`.\n",
      read_environment("OMPI_COMM_WORLD_RANK").value_or("?"), read_environment("OMPI_COMM_WORLD_SIZE").value_or("?"),
      child, signal, strsignal(signal));
  return 1;
}

int wait_for(pid_t child, const sigset_t& signals) {
  while (true) {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) return 1;
    if (signal != SIGCHLD) {
      kill(child, signal);
      continue;
    }
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return exit_code_of(child, status);
  }
}

}  // namespace

std::optional<int> supervise_rank() {
  if (!read_environment("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  const pid_t parent = getpid();
  const sigset_t signals = watched_signals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &signals, &before);  // before the fork, so that no signal is lost in between
  const pid_t child = fork();
  if (child > 0) return wait_for(child, signals);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return std::nullopt;  // no parent then; the rank itself still runs
  prctl(PR_SET_PDEATHSIG, SIGKILL);    // nobody is left behind when the parent is killed
  if (getppid() != parent) _exit(1);
  return std::nullopt;
}

}  // namespace gimbal
