// The server over real TCP connections, with an engine that says a fixed text.
#include "server/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/routes/route_list.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <boost/json.hpp>

namespace gimbal {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using testing::HasSubstr;

// Answers every request with the ids of a text, then one id for ever; from a thread of its own.
class ScriptedGateway final : public RequestGateway {
 public:
  explicit ScriptedGateway(std::vector<TokenId> script) : script_(std::move(script)) {}
  ~ScriptedGateway() override { end(); }
  // Aborts what runs and joins: no event comes afterwards.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      for (const GenerationRequest& request : requests_) aborted_.push_back(request.request_id);
      changed_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  Status submit(GenerationRequest request, std::function<void(const TokenEvent&)> on_event) override {
    const std::lock_guard lock(mutex_);
    if (is_full_) return fail(Error{ErrorKind::kTooManyWaiting, "The queue is full.", {}});
    requests_.push_back(request);
    changed_.notify_all();
    threads_.emplace_back(
        [this, request = std::move(request), on_event = std::move(on_event)] { run(request, on_event); });
    return {};
  }
  void abort(const std::string& request_id) override {
    const std::lock_guard lock(mutex_);
    aborted_.push_back(request_id);
    changed_.notify_all();
  }
  void abort_all() override { abort("all"); }
  void flush_cache(std::function<void(bool)> on_done) override { on_done(!is_busy_); }
  void pause(PauseMode mode, std::function<void()> on_done) override {
    pause_mode_ = mode;
    on_done();
  }
  void continue_generation() override { pause_mode_.reset(); }
  void report(std::function<void(std::vector<RankReport>)> on_done) override { on_done({}); }
  EngineState state() const override {
    EngineState state;
    state.is_ready = true;
    state.is_paused = pause_mode_.has_value();
    return state;
  }
  std::atomic<bool> is_busy_ = false;

  void wait_for_aborts(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return aborted_.size() >= count; });
  }
  size_t num_aborted() {
    const std::lock_guard lock(mutex_);
    return aborted_.size();
  }
  GenerationRequest last_request() {
    const std::lock_guard lock(mutex_);
    return requests_.back();
  }
  std::vector<GenerationRequest> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  void wait_for_requests(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return requests_.size() >= count; });
  }
  void set_full(bool is_full) {
    const std::lock_guard lock(mutex_);
    is_full_ = is_full;
  }
  // Requests hang after their script until they are aborted.
  void set_endless(bool is_endless) {
    const std::lock_guard lock(mutex_);
    is_endless_ = is_endless;
  }

 private:
  bool is_aborted(const std::string& id) { return std::find(aborted_.begin(), aborted_.end(), id) != aborted_.end(); }
  void run(const GenerationRequest& request, const std::function<void(const TokenEvent&)>& on_event) {
    for (int64_t i = 0; i < request.sampling.max_new_tokens; ++i) {
      TokenEvent event;
      event.token_id = script_[static_cast<size_t>(i) % script_.size()];
      if (i + 1 == request.sampling.max_new_tokens) event.finish = FinishReason::kLength;
      {
        std::unique_lock lock(mutex_);
        if (is_endless_ && i >= 3) changed_.wait(lock, [&] { return is_aborted(request.request_id); });
        if (is_aborted(request.request_id)) {
          event = {};
          event.finish = FinishReason::kAbort;
        }
      }
      on_event(event);
      if (event.finish) return;
    }
  }
  std::vector<TokenId> script_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> aborted_;
  std::vector<GenerationRequest> requests_;
  bool is_full_ = false;
  bool is_endless_ = false;
  std::optional<PauseMode> pause_mode_;
  std::vector<std::thread> threads_;
};

// One connection of a client.
class Client {
 public:
  explicit Client(uint16_t port) : socket_(io_) { socket_.connect({asio::ip::make_address("127.0.0.1"), port}); }
  void send(const std::string& bytes) { asio::write(socket_, asio::buffer(bytes)); }
  std::string read_head() {
    const size_t size = asio::read_until(socket_, buffer_, "\r\n\r\n");
    return take(size);
  }
  // One answer with a Content-Length.
  std::string read_answer() {
    std::string head = read_head();
    const size_t at = head.find("Content-Length: ");
    if (at == std::string::npos) return head;
    const size_t length = std::stoul(head.substr(at + 16));
    if (buffer_.size() < length) asio::read(socket_, buffer_, asio::transfer_exactly(length - buffer_.size()));
    return head + take(length);
  }
  std::string read_to_end() {
    boost::system::error_code error;
    asio::read(socket_, buffer_, error);
    return take(buffer_.size());
  }
  std::string read_until(const std::string& text) { return take(asio::read_until(socket_, buffer_, text)); }
  void reset() {
    socket_.set_option(asio::socket_base::linger(true, 0));
    socket_.close();
  }

 private:
  std::string take(size_t size) {
    std::string text(asio::buffers_begin(buffer_.data()),
                     asio::buffers_begin(buffer_.data()) + static_cast<std::ptrdiff_t>(size));
    buffer_.consume(size);
    return text;
  }
  asio::io_context io_;
  tcp::socket socket_;
  asio::streambuf buffer_;
};

std::string post(const std::string& path, const std::string& body, const std::string& more = {}) {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + more +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest()
      : tokenizer_(*Tokenizer::read(std::string(GIMBAL_SOURCE_DIR) + "/models/kimi-k2-mini")),
        gateway_(tokenizer_.encode(" the quick brown fox", SpecialTokens::kAsText)) {
    context_.tokenizer = &tokenizer_;
    context_.served_model_name = "mini";
    context_.vocab_size = 4096;
    context_.context_length = 4096;
    context_.gateway = &gateway_;
    limits_.max_body_bytes = 20000;
    limits_.max_header_bytes = 8192;
  }
  ~HttpServerTest() override {
    asio::post(io_, [this] {
      if (server_) server_->close();
      io_.stop();
    });
    if (thread_.joinable()) thread_.join();
    gateway_.end();
    context_.workers.join();
  }
  void start() {
    auto server = HttpServer::bind(io_, context_, limits_, "127.0.0.1", 0);
    ASSERT_TRUE(server.has_value()) << server.error().message;
    server_ = std::move(*server);
    server_->start();
    thread_ = std::thread([this] { io_.run(); });
  }
  std::string ask(const std::string& bytes) {
    Client client(server_->port());
    client.send(bytes);
    return client.read_answer();
  }
  // The error body of a refused request.
  std::string refusal(const std::string& path, const std::string& body, const char* status = "HTTP/1.1 400") {
    const std::string answer = ask(post(path, body));
    EXPECT_THAT(answer, testing::StartsWith(status)) << body;
    const auto error = boost::json::parse(answer.substr(answer.find("\r\n\r\n") + 4)).at("error").as_object();
    EXPECT_TRUE(error.contains("type") && error.contains("param") && error.contains("code"));
    return std::string(error.at("message").as_string());
  }
  boost::json::value answer_of(const std::string& path, const std::string& body) {
    const std::string answer = ask(post(path, body));
    EXPECT_THAT(answer, testing::StartsWith("HTTP/1.1 200")) << answer;
    return boost::json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  }

  Tokenizer tokenizer_;
  ScriptedGateway gateway_;
  ServerContext context_;
  ServerLimits limits_;
  asio::io_context io_{1};  // ends before all that exchanges use
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(HttpServerTest, CompletionsAndChatAndGenerate) {
  start();
  const auto completion =
      answer_of("/v1/completions", R"({"model":"mini","prompt":"a","max_tokens":8,"temperature":0})");
  EXPECT_EQ(completion.at("object").as_string(), "text_completion");
  EXPECT_EQ(completion.at("usage").at("completion_tokens").as_int64(), 8);
  const std::string text(completion.at("choices").at(0).at("text").as_string());
  EXPECT_THAT(text, HasSubstr(" the quick"));
  EXPECT_EQ(completion.at("choices").at(0).at("finish_reason").as_string(), "length");
  const auto chat = answer_of(
      "/v1/chat/completions",
      R"({"model":"mini","messages":[{"role":"user","content":"a"}],"max_tokens":8,"max_completion_tokens":3})");
  EXPECT_EQ(chat.at("choices").at(0).at("message").at("role").as_string(), "assistant");
  EXPECT_EQ(chat.at("usage").at("completion_tokens").as_int64(), 3);
  const auto generate = answer_of("/generate", R"({"text":["a","b"],"sampling_params":{"max_new_tokens":4}})");
  ASSERT_EQ(generate.as_array().size(), 2u);
  EXPECT_EQ(generate.at(1).at("output_ids").as_array().size(), 4u);
  EXPECT_EQ(generate.at(0).at("meta_info").at("finish_reason").at("type").as_string(), "length");
}

TEST_F(HttpServerTest, SamplingFieldsReachTheEngine) {
  start();
  answer_of(
      "/v1/completions",
      R"({"model":"mini","prompt":[5,6],"max_tokens":2,"temperature":0.5,"top_p":0.25,"top_k":-1,"min_p":0.125,"seed":-1,"min_tokens":1,"ignore_eos":true,"stop_token_ids":[7]})");
  const GenerationRequest request = gateway_.last_request();
  EXPECT_EQ(request.prompt_ids, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_p, 0.25f);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.min_p, 0.125f);
  EXPECT_EQ(request.sampling.seed, static_cast<uint64_t>(-1));
  EXPECT_EQ(request.sampling.max_new_tokens, 2);
  EXPECT_EQ(request.sampling.min_new_tokens, 1);
  EXPECT_TRUE(request.sampling.ignore_eos);
  EXPECT_EQ(request.sampling.stop_token_ids, std::vector<TokenId>{7});
  answer_of(
      "/v1/chat/completions",
      R"({"model":"mini","messages":[{"role":"user","content":"a"}],"max_tokens":null,"stop":null,"n":null,"stream":null})");
  EXPECT_EQ(
      gateway_.last_request().sampling.max_new_tokens + static_cast<int64_t>(gateway_.last_request().prompt_ids.size()),
      4096);
}

TEST_F(HttpServerTest, ChatStreamHasOneRoleOneFinishUsageAndDone) {
  start();
  Client client(server_->port());
  client.send(post(
      "/v1/chat/completions",
      R"({"model":"mini","messages":[{"role":"user","content":"a"}],"max_tokens":6,"stream":true,"stream_options":{"include_usage":true}})"));
  EXPECT_THAT(client.read_head(), HasSubstr("text/event-stream"));
  std::vector<std::string> events;
  while (events.empty() || events.back() != "[DONE]") {
    std::string event = client.read_until("\n\n");
    events.push_back(event.substr(event.find("data: ") + 6));
    events.back().resize(events.back().size() - 2);
  }
  int num_roles = 0, num_finishes = 0;
  std::string text;
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    const auto choice = boost::json::parse(events[i]).at("choices").at(0).as_object();
    num_roles += choice.at("delta").as_object().contains("role") ? 1 : 0;
    num_finishes += choice.at("finish_reason").is_null() ? 0 : 1;
    if (const auto* content = choice.at("delta").as_object().if_contains("content")) text += content->as_string();
  }
  const auto usage = boost::json::parse(events[events.size() - 2]);
  EXPECT_TRUE(usage.at("choices").as_array().empty());
  EXPECT_EQ(usage.at("usage").at("completion_tokens").as_int64(), 6);
  EXPECT_EQ(num_roles, 1);
  EXPECT_EQ(num_finishes, 1);
  EXPECT_TRUE(boost::json::parse(events[0]).at("choices").at(0).at("delta").as_object().contains("role"));
  EXPECT_THAT(text, HasSubstr("quick"));
  client.send(post("/v1/completions", R"({"model":"mini","prompt":"a","max_tokens":1})"));  // the connection lives on
  client.read_until("0\r\n\r\n");
  EXPECT_THAT(client.read_answer(), testing::StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, StopTextsAreFoundAcrossTokensAndWithheld) {
  start();
  for (const char* stop : {R"("ick br")", R"(["zzz", "ick br"])"}) {
    const auto body = answer_of("/v1/completions",
                                std::string(R"({"model":"mini","prompt":"a","max_tokens":40,"stop":)") + stop + "}");
    EXPECT_EQ(body.at("choices").at(0).at("text").as_string(), " the qu");
    EXPECT_EQ(body.at("choices").at(0).at("finish_reason").as_string(), "stop");
    EXPECT_EQ(body.at("choices").at(0).at("matched_stop").as_string(), "ick br");
  }
  Client client(server_->port());
  client.send(post("/v1/completions", R"({"model":"mini","prompt":"a","max_tokens":40,"stop":"brown","stream":true})"));
  const std::string stream = client.read_until("[DONE]");
  EXPECT_THAT(stream, testing::Not(HasSubstr("\"text\":\"b")));
  EXPECT_THAT(stream, HasSubstr("\"finish_reason\":\"stop\""));
}

TEST_F(HttpServerTest, ALostClientAbortsItsRequest) {
  gateway_.set_endless(true);
  start();
  Client streaming(server_->port()), whole(server_->port());
  streaming.send(post("/v1/completions", R"({"model":"mini","prompt":"a","max_tokens":1000,"stream":true})"));
  streaming.read_until("data: ");
  whole.send(post("/v1/completions", R"({"model":"mini","prompt":"a","max_tokens":1000})"));
  streaming.reset();
  gateway_.wait_for_aborts(1);
  whole.reset();
  gateway_.wait_for_aborts(2);
  EXPECT_THAT(ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"), testing::StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, WrongFieldsAreNamed) {
  start();
  const std::string base = R"({"model":"mini","prompt":"a",)";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("max_tokens":0})", "max_tokens"},
      {R"("max_tokens":-3})", "max_tokens"},
      {R"("max_tokens":"5"})", "max_tokens"},
      {R"("max_tokens":1.5})", "max_tokens"},
      {R"("max_tokens":1e99})", "max_tokens"},
      {R"("temperature":-1})", "temperature"},
      {R"("temperature":"hot"})", "temperature"},
      {R"("temperature":3})", "temperature"},
      {R"("top_p":0})", "top_p"},
      {R"("top_p":1.1})", "top_p"},
      {R"("top_k":-2})", "top_k"},
      {R"("min_p":2})", "min_p"},
      {R"("seed":1.5})", "seed"},
      {R"("seed":18446744073709551616})", "seed"},
      {R"("stop":7})", "stop"},
      {R"("stop":""})", "stop"},
      {R"("stop":["a",1]})", "stop"},
      {R"("n":0})", "n"},
      {R"("n":129})", "n"},
      {R"("best_of":5})", "best_of"},
      {R"("logprobs":21})", "logprobs"},
      {R"("logit_bias":{"4096":1}})", "logit_bias"},
      {R"("logit_bias":{"5":101}})", "logit_bias"},
      {R"("logit_bias":{"5":1,"05":1}})", "twice"},
      {R"("logit_bias":[5]})", "logit_bias"},
      {R"("repetition_penalty":0})", "repetition_penalty"},
      {R"("frequency_penalty":2.5})", "frequency_penalty"},
      {R"("echo":1})", "echo"},
      {R"("priority":"high"})", "priority"},
      {R"("deadline_ms":0})", "deadline_ms"},
      {R"("cache_salt":5})", "cache_salt"},
      {R"("prompt_logprobs":1,"stream":true})", "prompt_logprobs"},
      {R"("stream":"yes"})", "stream"},
      {R"("stream_options":{"include_usage":"True"}})", "include_usage"},
      {R"("stop_token_ids":[4096]})", "stop_token_ids"},
      {R"("tempurature":1})", "did you mean temperature"}};
  for (const auto& [fields, expected] : cases)
    EXPECT_THAT(refusal("/v1/completions", base + fields), HasSubstr(expected)) << fields;
}

TEST_F(HttpServerTest, WrongPromptsAndModels) {
  start();
  EXPECT_THAT(refusal("/v1/completions", R"({"model":"mini"})"), HasSubstr("prompt: is missing"));
  EXPECT_THAT(refusal("/v1/completions", R"({"model":"mini","prompt":""})"), HasSubstr("prompt: is empty"));
  EXPECT_THAT(refusal("/v1/completions", R"({"model":"mini","prompt":[]})"), HasSubstr("prompt: is empty"));
  EXPECT_THAT(refusal("/v1/completions", R"({"model":"mini","prompt":[4096]})"), HasSubstr("holds 4096"));
  EXPECT_THAT(refusal("/v1/completions", R"({"model":"mini","prompt":["a",5]})"), HasSubstr("mixes"));
  EXPECT_THAT(refusal("/v1/completions", R"({"model":"mini","prompt":["a",""]})"), HasSubstr("is empty"));
  EXPECT_THAT(refusal("/v1/completions", R"({"model":"other","prompt":"a"})", "HTTP/1.1 404"), HasSubstr("'other'"));
  EXPECT_THAT(refusal("/v1/completions", R"({"prompt":"a"})"), HasSubstr("model: is missing"));
  EXPECT_THAT(refusal("/v1/completions",
                      "{\"model\":\"mini\",\"prompt\":\"" + std::string(15000, 'a') + std::string(4000, ' ') + "\"",
                      "HTTP/1.1 400"),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("/v1/chat/completions", R"({"model":"mini","messages":[]})"), HasSubstr("messages: is empty"));
  EXPECT_THAT(refusal("/generate", R"({"sampling_params":{}})"), HasSubstr("exactly one of text and input_ids"));
  EXPECT_THAT(refusal("/generate", R"({"text":"a","sampling_params":{"max_new_tokens":0}})"),
              HasSubstr("sampling_params.max_new_tokens"));
  EXPECT_THAT(refusal("/generate", R"({"input_ids":[-5]})"), HasSubstr("input_ids"));
  for (const char* body :
       {"", "[]", "7", "{\"model\":\"mini\",}", "\xff\xfe", "{\"model\":\"mini\",\"prompt\":\"\xff\"}", "null"})
    refusal("/v1/completions", body);
  refusal("/v1/completions", std::string(10000, '['));
}

TEST_F(HttpServerTest, ALongTextIsRefusedBeforeItIsEncoded) {
  limits_.max_body_bytes = 2000000;
  start();
  EXPECT_THAT(refusal("/v1/completions", "{\"model\":\"mini\",\"prompt\":\"" + std::string(1000000, '^') + "\"}"),
              testing::AllOf(HasSubstr("1000000 bytes"), HasSubstr("4096")));
}

TEST_F(HttpServerTest, PathsAndMethods) {
  start();
  EXPECT_THAT(ask("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"), testing::StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask("GET /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n"),
              testing::AllOf(testing::StartsWith("HTTP/1.1 405"), HasSubstr("Allow: POST")));
  EXPECT_THAT(ask("GET /health?verbose=1 HTTP/1.1\r\nHost: x\r\n\r\n"),
              testing::AllOf(testing::StartsWith("HTTP/1.1 200"), HasSubstr("x-request-id: ")));
  EXPECT_THAT(ask("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("\"max_model_len\":4096"));
  EXPECT_THAT(ask("GET /v1/models/mini HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("\"id\":\"mini\""));
  EXPECT_THAT(ask("GET /v1/models/other HTTP/1.1\r\nHost: x\r\n\r\n"), testing::StartsWith("HTTP/1.1 404"));
  Client head(server_->port());
  head.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(head.read_head(), testing::StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(head.read_answer(), testing::StartsWith("HTTP/1.1 200"));  // a HEAD answer has no body
}

TEST_F(HttpServerTest, LoadingStoppingAndFullAreUnavailable) {
  start();
  gateway_.set_full(true);
  EXPECT_THAT(ask(post("/v1/completions", R"({"model":"mini","prompt":"a"})")),
              testing::AllOf(testing::StartsWith("HTTP/1.1 429"), HasSubstr("Retry-After"), HasSubstr("queue_full")));
  context_.gateway = nullptr;
  EXPECT_THAT(ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"),
              testing::AllOf(testing::StartsWith("HTTP/1.1 503"), HasSubstr("being loaded")));
  EXPECT_THAT(ask(post("/v1/chat/completions", R"({"model":"mini","messages":[{"role":"user","content":"a"}]})")),
              testing::StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(ask("GET /health_generate HTTP/1.1\r\nHost: x\r\n\r\n"), testing::StartsWith("HTTP/1.1 503"));
  context_.gateway = &gateway_;
  context_.is_stopping = true;
  EXPECT_THAT(ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("stopping"));
}

TEST_F(HttpServerTest, ChoicesOfSeveralPromptsAreNumberedAndForked) {
  start();
  const auto body =
      answer_of("/v1/completions", R"({"model":"mini","prompt":["a b","c"],"n":2,"max_tokens":3,"seed":7})");
  ASSERT_EQ(body.at("choices").as_array().size(), 4u);
  for (int64_t index = 0; index < 4; ++index)
    EXPECT_EQ(body.at("choices").at(static_cast<size_t>(index)).at("index"), index);
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 12);
  const auto requests = gateway_.requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0].fork_of, "");
  EXPECT_EQ(requests[1].fork_of, requests[0].request_id);
  EXPECT_EQ(requests[1].prompt_ids, requests[0].prompt_ids);
  EXPECT_EQ(requests[2].fork_of, "");
  EXPECT_EQ(requests[3].sampling.seed, 10u);
  // Once per prompt.
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(),
            static_cast<int64_t>(requests[0].prompt_ids.size() + requests[2].prompt_ids.size()));
}

TEST_F(HttpServerTest, OptionsReachTheEngine) {
  start();
  answer_of("/v1/completions",
            R"({"model":"mini","prompt":"a","max_tokens":1,"logit_bias":{"17":-5.5,"3":2},"repetition_penalty":1.5,
                "frequency_penalty":0.5,"presence_penalty":-1,"priority":3,"cache_salt":"mine","deadline_ms":60000,
                "logprobs":2,"min_tokens":1})");
  const GenerationRequest request = gateway_.last_request();
  ASSERT_EQ(request.sampling.biases.size(), 2u);
  EXPECT_EQ(request.sampling.biases[0].id, 3);
  EXPECT_EQ(request.sampling.biases[1].bias, -5.5f);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(request.sampling.frequency_penalty, 0.5f);
  EXPECT_EQ(request.sampling.presence_penalty, -1.0f);
  EXPECT_EQ(request.priority, 3);
  EXPECT_EQ(request.cache_salt, "mine");
  EXPECT_EQ(request.deadline, std::chrono::milliseconds(60000));
  EXPECT_TRUE(request.wants_log_probability);
  EXPECT_EQ(request.num_top_logits, 2);
}

TEST_F(HttpServerTest, KeysGuardEveryRouteButLiveHealth) {
  context_.api_key = "k-1";
  context_.admin_key = "k-2";
  start();
  const auto status = [&](const std::string& method, const std::string& path, const std::string& header) {
    const std::string answer = ask(method + " " + path + " HTTP/1.1\r\nHost: x\r\n" + header +
                                   "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
    return answer.substr(9, 3);
  };
  const std::string key = "Authorization: Bearer k-1\r\n", admin = "Authorization: bearer k-2\r\n";
  for (const Route& route : route_list()) {
    const std::string method(boost::beast::http::to_string(route.method));
    const std::string path = std::string(route.path) + (route.path.ends_with('/') ? "mini" : "");
    if (route.access == RouteAccess::kOpen) {
      EXPECT_EQ(status(method, path, ""), "200") << path;
      continue;
    }
    for (const char* wrong : {"", "Authorization: Bearer k-3\r\n", "Authorization: k-1\r\n", "X-Api-Key: k-1\r\n",
                              "Authorization: Bearer \r\n", "Authorization: Bearer k-11\r\n"})
      EXPECT_EQ(status(method, path, wrong), "401") << path << " " << wrong;
    EXPECT_NE(status(method, path, admin), "401") << path;
    EXPECT_EQ(status(method, path, key) == "401", route.access == RouteAccess::kAdmin) << path;
  }
  EXPECT_EQ(status("GET", "/nowhere", ""), "401");
  EXPECT_EQ(status("GET", "/nowhere", key), "404");
  EXPECT_THAT(ask("OPTIONS /generate HTTP/1.1\r\nHost: x\r\n\r\n"), testing::StartsWith("HTTP/1.1 401"));
}

TEST_F(HttpServerTest, BrowsersMayAskAcrossOrigins) {
  context_.cors_origin = "https://app.example";
  context_.api_key = "k-1";
  start();
  EXPECT_THAT(
      ask("OPTIONS /generate HTTP/1.1\r\nHost: x\r\n\r\n"),
      testing::AllOf(testing::StartsWith("HTTP/1.1 204"), HasSubstr("Access-Control-Allow-Origin: https://app.example"),
                     HasSubstr("Access-Control-Allow-Headers: authorization, content-type")));
}

TEST_F(HttpServerTest, ControlRoutesDoWhatTheySay) {
  start();
  EXPECT_THAT(ask(post("/flush_cache", "")), testing::StartsWith("HTTP/1.1 200"));
  gateway_.is_busy_ = true;
  EXPECT_THAT(ask("GET /flush_cache HTTP/1.1\r\nHost: x\r\n\r\n"), testing::StartsWith("HTTP/1.1 409"));
  EXPECT_THAT(ask(post("/flush_cache?timeout=0.05", "")), testing::StartsWith("HTTP/1.1 409"));
  EXPECT_THAT(ask(post("/flush_cache?timeout=x", "")), testing::StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(refusal("/abort_request", R"({"rid":""})"), HasSubstr("abort_all"));
  EXPECT_THAT(ask(post("/abort_request", R"({"rid":"nobody"})")), testing::StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(gateway_.num_aborted(), 0u);
  EXPECT_THAT(ask(post("/abort_request", R"({"abort_all":true})")), testing::StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(gateway_.num_aborted(), 1u);
  EXPECT_THAT(refusal("/pause_generation", R"({"mode":"now"})"), HasSubstr("mode"));
  EXPECT_THAT(ask(post("/pause_generation", R"({"mode":"in_place"})")), testing::StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(gateway_.state().is_paused);
  EXPECT_THAT(ask(post("/continue_generation", "")), testing::StartsWith("HTTP/1.1 200"));
  EXPECT_FALSE(gateway_.state().is_paused);
}

TEST_F(HttpServerTest, TextsAndIdsGoBothWays) {
  start();
  const auto ids = answer_of("/v1/tokenize", R"({"prompt":"the quick brown fox"})").at("tokens");
  EXPECT_EQ(answer_of("/detokenize", "{\"tokens\":" + boost::json::serialize(ids) + "}").at("text").as_string(),
            "the quick brown fox");
  EXPECT_THAT(refusal("/v1/detokenize", R"({"tokens":[4096]})"), HasSubstr("tokens"));
  EXPECT_THAT(refusal("/v1/tokenize", "{}"), HasSubstr("prompt: is missing"));
}

TEST_F(HttpServerTest, TheNamedRequestIsAborted) {
  gateway_.set_endless(true);
  start();
  Client client(server_->port());
  client.send(post("/generate", R"({"text":"a","rid":"job-1","sampling_params":{"max_new_tokens":100}})"));
  gateway_.wait_for_requests(1);
  ask(post("/abort_request", R"({"rid":"job-11"})"));
  ask(post("/abort_request", R"({"rid":"job-"})"));
  EXPECT_EQ(gateway_.num_aborted(), 0u);
  ask(post("/abort_request", R"({"rid":"job-1"})"));
  EXPECT_THAT(client.read_answer(), testing::AllOf(HasSubstr("\"type\":\"abort\""), HasSubstr("\"id\":\"job-1\"")));
}

TEST_F(HttpServerTest, LimitsOfHeadAndBody) {
  start();
  EXPECT_THAT(ask("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 20001\r\n\r\n"),
              testing::StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(
      ask("POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"),
      testing::StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(ask("GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + std::string(9000, 'a') + "\r\n\r\n"),
              testing::StartsWith("HTTP/1.1 431"));
  std::string chunks = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 3; ++i) chunks += "2000\r\n" + std::string(0x2000, 'a') + "\r\n";
  EXPECT_THAT(ask(chunks), testing::StartsWith("HTTP/1.1 413"));
  for (const char* bad : {"NONSENSE\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
                          "GET /health HTTP/1.1\r\nContent-Length: abc\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n"}) {
    EXPECT_THAT(ask(bad), testing::StartsWith("HTTP/1.1 400")) << bad;
  }
}

TEST_F(HttpServerTest, ExpectContinue) {
  start();
  const std::string body = R"({"model":"mini","prompt":"a","max_tokens":1})";
  Client client(server_->port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_THAT(client.read_head(), testing::StartsWith("HTTP/1.1 100 Continue"));
  client.send(body.substr(0, 5));
  client.send(body.substr(5));
  EXPECT_THAT(client.read_answer(), testing::StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask("POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\nContent-Length: 1\r\n\r\n"),
              testing::StartsWith("HTTP/1.1 417"));
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  Client client(server_->port());
  client.send(post("/v1/completions", R"({"model":"mini","prompt":"a","max_tokens":1})") +
              post("/v1/completions", R"({"model":"mini","prompt":"a","max_tokens":2})") +
              "GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.read_answer(), HasSubstr("\"completion_tokens\":1"));
  EXPECT_THAT(client.read_answer(), HasSubstr("\"completion_tokens\":2"));
  EXPECT_THAT(client.read_answer(), testing::StartsWith("HTTP/1.1 404"));
}

TEST_F(HttpServerTest, SlowAndIdleClientsAreLetGo) {
  limits_.request_timeout = std::chrono::milliseconds(100);
  limits_.idle_timeout = std::chrono::milliseconds(100);
  start();
  Client idle(server_->port()), slow_head(server_->port()), slow_body(server_->port());
  slow_head.send("POST /v1/completions HTTP/1.1\r\nHos");
  slow_body.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{");
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_THAT(slow_head.read_to_end(), testing::StartsWith("HTTP/1.1 408"));
  EXPECT_THAT(slow_body.read_to_end(), testing::StartsWith("HTTP/1.1 408"));
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreTurnedAway) {
  limits_.max_connections = 2;
  start();
  Client first(server_->port()), second(server_->port());
  first.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  second.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(first.read_answer(), testing::StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(second.read_answer(), testing::StartsWith("HTTP/1.1 200"));
  Client third(server_->port());
  const std::string answer = third.read_to_end();
  EXPECT_THAT(answer, testing::AllOf(testing::StartsWith("HTTP/1.1 503"), HasSubstr("--max-connections")));
  EXPECT_NO_THROW(boost::json::parse(answer.substr(answer.find("\r\n\r\n") + 4)));
}

TEST_F(HttpServerTest, ATakenPortIsSaidAtOnce) {
  start();
  const auto second = HttpServer::bind(io_, context_, limits_, "127.0.0.1", server_->port());
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message,
              testing::AllOf(HasSubstr(std::to_string(server_->port())), HasSubstr("Another program listens there")));
  EXPECT_THAT(HttpServer::bind(io_, context_, limits_, "203.0.113.7", 0).error().message, HasSubstr("203.0.113.7"));
  EXPECT_THAT(HttpServer::bind(io_, context_, limits_, "no-such-host", 0).error().message, HasSubstr("no-such-host"));
}

}  // namespace
}  // namespace gimbal
