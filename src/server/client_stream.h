// ClientStream: the bytes of one connection, plain or through TLS, with the time-outs of Beast's tcp_stream.
#pragma once

#include <memory>
#include <utility>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/tcp_stream.hpp>

namespace gimbal {

// An AsyncStream of Asio. Used on the I/O thread.
class ClientStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;

  // `tls` is nullptr for plain text; else it must outlive the stream, and handshake() comes first.
  ClientStream(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls)
      : tcp_(std::make_unique<boost::beast::tcp_stream>(std::move(socket))) {
    if (tls != nullptr) tls_ = std::make_unique<TlsStream>(*tcp_, *tls);
  }

  executor_type get_executor() { return tcp_->get_executor(); }
  bool is_tls() const { return tls_ != nullptr; }

  template <typename Token>
  auto handshake(Token&& token) {
    return tls_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return tcp_->async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return tcp_->async_write_some(buffers, std::forward<Token>(token));
  }

  void expires_after(std::chrono::nanoseconds patience) { tcp_->expires_after(patience); }
  void expires_never() { tcp_->expires_never(); }
  void cancel() { tcp_->cancel(); }
  boost::asio::ip::tcp::socket& socket() { return tcp_->socket(); }

 private:
  using TlsStream = boost::asio::ssl::stream<boost::beast::tcp_stream&>;
  std::unique_ptr<boost::beast::tcp_stream> tcp_;
  std::unique_ptr<TlsStream> tls_;
};

}  // namespace gimbal
