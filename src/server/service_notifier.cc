#include "server/service_notifier.h"

#include <fmt/format.h>
#include <systemd/sd-daemon.h>

namespace gimbal {
namespace {

// The environment stays as it is: the variables are asked for again with every message.
void notify(const std::string& message) { (void)sd_notify(0, message.c_str()); }

}  // namespace

void ServiceNotifier::loading(const std::string& status, std::chrono::seconds more) {
  notify(fmt::format("STATUS={}\nEXTEND_TIMEOUT_USEC={}", status,
                     std::chrono::duration_cast<std::chrono::microseconds>(more).count()));
}

void ServiceNotifier::ready(const std::string& status) {
  if (is_ready_) return;
  is_ready_ = true;
  notify(fmt::format("READY=1\nSTATUS={}", status));
}

void ServiceNotifier::stopping() { notify("STOPPING=1\nSTATUS=Stopping"); }

void ServiceNotifier::alive() { notify("WATCHDOG=1"); }

std::optional<std::chrono::microseconds> ServiceNotifier::watchdog_interval() const {
  uint64_t microseconds = 0;
  if (sd_watchdog_enabled(0, &microseconds) <= 0) return std::nullopt;
  return std::chrono::microseconds(microseconds);
}

}  // namespace gimbal
