// ServiceNotifier: tells the service manager (systemd's sd_notify protocol) how the server is. Without $NOTIFY_SOCKET,
// or when nobody listens there, nothing happens.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace gimbal {

class ServiceNotifier {
 public:
  // Still starting: what is being done, and that it may take this much longer.
  void loading(const std::string& status, std::chrono::seconds more);
  // Sent once, however often it is called.
  void ready(const std::string& status);
  void stopping();
  // Alive; to be sent more often than watchdog_interval().
  void alive();
  // From $WATCHDOG_USEC; nullopt: the manager does not watch.
  std::optional<std::chrono::microseconds> watchdog_interval() const;

 private:
  bool is_ready_ = false;
};

}  // namespace gimbal
