// HostComm: small messages between all ranks: step plans, results, agreement at start. Apart from the tensors, so that
// planning never waits behind them.
//
// Order is kept per pair of ranks. One rank's object is used by one thread at a time.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/result.h"

namespace gimbal {

// Message bytes are shared, never copied, between threads.
using HostMessage = std::shared_ptr<const std::string>;

enum class Patience {
  kTimeout,  // an error when nothing comes within the world's time-out
  kForever,  // a worker waits for work; ends with an error only when the world fails
};

class HostComm {
 public:
  virtual ~HostComm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Status send(int peer, HostMessage message) = 0;
  virtual Result<HostMessage> receive(int peer, Patience patience) = 0;
  // Makes every call of every rank fail with `error`, now and later. Among processes: ends them.
  virtual void raise(const Error& error) = 0;
};

// Rank 0 collects one status of every rank and tells all the first that failed (by rank), or that all went well.
Status agree(HostComm& comm, const Status& own);

}  // namespace gimbal
