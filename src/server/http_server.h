// HttpServer: listens, takes connections, runs their requests one after the other.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "base/result.h"
#include "server/exchange.h"
#include "server/server_context.h"
#include "server/server_limits.h"

namespace gimbal {

// Lives on one I/O thread: whoever runs the io_context. Every member must be called there or before it runs.
class HttpServer {
 public:
  // Binds at once, so that a taken port is known before any weight is read. `server` must outlive this object.
  static Result<std::unique_ptr<HttpServer>> bind(boost::asio::io_context& io, ServerContext& server,
                                                  const ServerLimits& limits, const std::string& host, uint16_t port);

  // From now on connections speak TLS with this certificate chain and key (PEM); before start().
  Status use_tls(const std::string& certificate_file, const std::string& key_file);

  // Starts to accept.
  void start();

  // Stops to accept, closes idle connections and waits until running requests have been answered or `patience` has
  // passed.
  boost::asio::awaitable<void> drain(std::chrono::milliseconds patience);
  // Closes what is still open.
  void close();

  std::string url() const;  // "http://127.0.0.1:30000"
  uint16_t port() const { return port_; }

 private:
  struct Connection {
    ClientStream stream;
    bool is_busy = false;  // a request has begun to arrive
  };
  using ConnectionPlace = std::list<Connection>::iterator;

  HttpServer(boost::asio::io_context& io, ServerContext& server, const ServerLimits& limits);
  Status listen(const std::string& host, uint16_t port);
  boost::asio::awaitable<void> accept_connections();
  boost::asio::awaitable<void> run_connection(ConnectionPlace place);
  boost::asio::awaitable<bool> shake_hands(Connection& connection);
  boost::asio::awaitable<void> serve_requests(Connection& connection);
  boost::asio::awaitable<void> refuse_connection(boost::asio::ip::tcp::socket socket);
  boost::asio::awaitable<bool> serve_one(Connection& connection, boost::beast::flat_buffer& buffer);
  int64_t num_busy() const;

  boost::asio::io_context& io_;
  ServerContext& server_;
  ServerLimits limits_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::unique_ptr<boost::asio::ssl::context> tls_;  // nullptr: plain
  std::list<Connection> connections_;
  std::string host_;
  uint16_t port_ = 0;
  bool is_draining_ = false;
};

}  // namespace gimbal
