// GET /openapi.json: OpenAPI 3.1, made from the route list and from the fields below.
#include <algorithm>
#include <map>
#include <boost/json/array.hpp>

#include "server/routes/route_list.h"

namespace gimbal {
namespace {

namespace json = boost::json;

json::object typed(std::string_view type) {
  json::object schema;
  schema["type"] = type;
  return schema;
}

// Fields that may be null count as absent.
json::object nullable(std::string_view type) {
  json::object schema;
  schema["type"] = json::array{json::value(type), json::value("null")};
  return schema;
}

json::object number(double least, double most) {
  json::object schema = nullable("number");
  schema["minimum"] = least;
  schema["maximum"] = most;
  return schema;
}

json::object integer(int64_t least, int64_t most) {
  json::object schema = nullable("integer");
  schema["minimum"] = least;
  schema["maximum"] = most;
  return schema;
}

json::object text(int64_t least, int64_t most) {
  json::object schema = typed("string");
  schema["minLength"] = least;
  schema["maxLength"] = most;
  return schema;
}

json::object list(json::object items, int64_t least, int64_t most) {
  json::object schema = typed("array");
  schema["items"] = std::move(items);
  schema["minItems"] = least;
  schema["maxItems"] = most;
  return schema;
}

json::object any_of(std::initializer_list<json::object> schemas) {
  json::array all;
  for (const json::object& schema : schemas) all.push_back(schema);
  json::object schema;
  schema["anyOf"] = std::move(all);
  return schema;
}

json::object only(std::initializer_list<json::value_ref> values) {
  json::object schema;
  schema["enum"] = json::array(values);
  return schema;
}

json::object object_of(json::object properties, std::initializer_list<json::value_ref> required = {}) {
  json::object schema = typed("object");
  schema["properties"] = std::move(properties);
  if (required.size() > 0) schema["required"] = json::array(required);
  schema["additionalProperties"] = false;
  return schema;
}

json::object token_ids(const ServerContext& server, int64_t least, int64_t most) {
  json::object id = typed("integer");
  id["minimum"] = 0;
  id["maximum"] = server.vocab_size - 1;
  return list(std::move(id), least, most);
}

constexpr int64_t kMostTokens = 32768;  // in the document: what any context of this server's models holds

void add_sampling(const ServerContext& server, json::object& fields, bool is_openai) {
  fields["temperature"] = number(0, is_openai ? 2 : 100);
  fields["top_p"] = number(1e-9, 1);
  fields["top_k"] = integer(-1, std::numeric_limits<int32_t>::max());
  fields["min_p"] = number(0, 1);
  fields[is_openai ? "seed" : "sampling_seed"] =
      integer(std::numeric_limits<int64_t>::min() / 1024, std::numeric_limits<int64_t>::max() / 1024);
  fields[is_openai ? "min_tokens" : "min_new_tokens"] = integer(0, kMostTokens);
  fields["ignore_eos"] = nullable("boolean");
  fields["skip_special_tokens"] = nullable("boolean");
  fields["frequency_penalty"] = number(-2, 2);
  fields["presence_penalty"] = number(-2, 2);
  fields["repetition_penalty"] = number(0.01, 2);
  fields["n"] = integer(1, 128);
  json::object bias = typed("number");
  bias["minimum"] = -100;
  bias["maximum"] = 100;
  json::object biases = nullable("object");
  json::object names;
  names["enum"] = json::array{"0", "1", "2", "17"};
  biases["propertyNames"] = std::move(names);
  biases["additionalProperties"] = std::move(bias);
  fields["logit_bias"] = std::move(biases);
  fields["stop"] = any_of({typed("null"), text(1, 1024), list(text(1, 1024), 0, 16)});
  fields["stop_token_ids"] = any_of({typed("null"), token_ids(server, 0, 256)});
  for (const char* key : {"regex", "ebnf", "json_schema"}) fields[key] = typed("null");
}

void add_service(json::object& fields) {
  fields["priority"] = integer(-1000000, 1000000);
  fields["cache_salt"] = any_of({typed("null"), text(0, 64)});
  fields["deadline_ms"] = integer(1, 1000000000);
}

json::object openai_fields(const ServerContext& server) {
  json::object fields;
  add_sampling(server, fields, true);
  add_service(fields);
  fields["model"] = only({json::value(server.served_model_name)});
  fields["max_tokens"] = integer(1, kMostTokens);
  fields["max_completion_tokens"] = integer(1, kMostTokens);
  fields["include_stop_str_in_output"] = nullable("boolean");
  fields["rid"] = any_of({typed("null"), text(0, 64)});
  fields["stream"] = nullable("boolean");
  json::object options;
  options["include_usage"] = nullable("boolean");
  options["continuous_usage_stats"] = nullable("boolean");
  fields["stream_options"] = any_of({typed("null"), object_of(std::move(options))});
  fields["best_of"] = only({1, nullptr});
  for (const char* key : {"response_format", "functions", "lora_path", "suffix", "guided_json", "return_hidden_states"})
    fields[key] = typed("null");
  for (const char* key :
       {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"})
    fields[key] = json::object{};
  return fields;
}

json::object completions_body(const ServerContext& server) {
  json::object fields = openai_fields(server);
  fields["prompt"] = any_of({text(1, 2000), token_ids(server, 1, 1000), list(text(1, 2000), 1, 256),
                             list(token_ids(server, 1, 1000), 1, 256)});
  fields["echo"] = nullable("boolean");
  fields["logprobs"] = integer(0, 20);
  fields["prompt_logprobs"] = integer(0, 20);
  return object_of(std::move(fields), {"model", "prompt"});
}

json::object chat_body(const ServerContext& server) {
  json::object fields = openai_fields(server);
  json::object part;
  part["type"] = only({"text"});
  part["text"] = typed("string");
  json::object message;
  message["role"] = only({"system", "user", "assistant"});
  message["content"] =
      any_of({typed("null"), text(0, 2000), list(object_of(std::move(part), {"type", "text"}), 0, 16)});
  message["name"] = any_of({typed("null"), text(0, 64)});
  message["reasoning_content"] = any_of({typed("null"), text(0, 2000)});
  fields["messages"] = list(object_of(std::move(message), {"role"}), 1, 1024);
  json::object kwargs;
  for (const char* key : {"thinking", "enable_thinking", "preserve_thinking"}) kwargs[key] = nullable("boolean");
  fields["chat_template_kwargs"] = any_of({typed("null"), object_of(std::move(kwargs))});
  fields["add_generation_prompt"] = nullable("boolean");
  fields["continue_final_message"] = only({false, nullptr});
  fields["logprobs"] = nullable("boolean");
  fields["top_logprobs"] = integer(0, 20);
  fields["tools"] = any_of({typed("null"), list(json::object{}, 0, 0)});
  fields["tool_choice"] = only({"none", "auto", nullptr});
  fields["echo"] = only({false, nullptr});
  for (const char* key : {"prompt_logprobs", "modalities", "audio", "reasoning_effort"}) fields[key] = typed("null");
  return object_of(std::move(fields), {"model", "messages"});
}

json::object generate_body(const ServerContext& server) {
  json::object sampling;
  add_sampling(server, sampling, false);
  sampling["max_new_tokens"] = integer(1, kMostTokens);
  sampling["no_stop_trim"] = nullable("boolean");
  sampling["spaces_between_special_tokens"] = only({true, nullptr});
  sampling["stream_interval"] = only({1, nullptr});
  for (const char* key : {"structural_tag", "custom_params"}) sampling[key] = typed("null");
  json::object fields;
  fields["text"] = any_of({typed("null"), text(1, 2000), list(text(1, 2000), 1, 256)});
  fields["input_ids"] = any_of({typed("null"), token_ids(server, 1, 1000), list(token_ids(server, 1, 1000), 1, 256)});
  fields["sampling_params"] = any_of({typed("null"), object_of(std::move(sampling))});
  fields["stream"] = nullable("boolean");
  fields["return_logprob"] = nullable("boolean");
  fields["logprob_start_len"] = integer(-1, std::numeric_limits<int32_t>::max());
  fields["top_logprobs_num"] = integer(0, 20);
  fields["return_text_in_logprobs"] = nullable("boolean");
  fields["rid"] = any_of({typed("null"), text(0, 64), list(text(1, 64), 0, 256)});
  add_service(fields);
  for (const char* key : {"image_data", "input_embeds", "audio_data", "lora_path", "token_ids_logprob"})
    fields[key] = typed("null");
  for (const char* key : {"model", "log_metrics"}) fields[key] = json::object{};
  return object_of(std::move(fields));
}

json::object tokenize_body() {
  json::object fields;
  for (const char* key : {"prompt", "text"}) fields[key] = nullable("string");
  for (const char* key : {"model", "add_special_tokens"}) fields[key] = json::object{};
  return object_of(std::move(fields));
}

json::object detokenize_body(const ServerContext& server) {
  json::object fields;
  fields["tokens"] = token_ids(server, 0, 1000);
  fields["skip_special_tokens"] = nullable("boolean");
  fields["model"] = json::object{};
  return object_of(std::move(fields), {"tokens"});
}

json::object abort_body() {
  json::object fields;
  fields["rid"] = nullable("string");
  fields["abort_all"] = nullable("boolean");
  for (const char* key : {"finished_reason", "abort_message"}) fields[key] = json::object{};
  return object_of(std::move(fields));
}

json::object pause_body() {
  json::object fields;
  fields["mode"] = only({"abort", "retract", "in_place", nullptr});
  return object_of(std::move(fields));
}

// The body of a POST route; nullopt: none is read.
std::optional<json::object> body_of(std::string_view path, const ServerContext& server) {
  if (path == "/v1/completions") return completions_body(server);
  if (path == "/v1/chat/completions") return chat_body(server);
  if (path == "/generate") return generate_body(server);
  if (path.ends_with("/tokenize")) return tokenize_body();
  if (path.ends_with("/detokenize")) return detokenize_body(server);
  if (path == "/abort_request") return abort_body();
  if (path == "/pause_generation") return pause_body();
  return std::nullopt;
}

json::object content(std::string_view type, json::object schema) {
  json::object media;
  media["schema"] = std::move(schema);
  json::object result;
  result[type] = std::move(media);
  return result;
}

json::object error_schema() {
  json::object inner;
  inner["message"] = typed("string");
  inner["type"] = typed("string");
  inner["param"] = nullable("string");
  inner["code"] = nullable("string");
  json::object fields;
  fields["error"] = object_of(std::move(inner), {"message", "type", "param", "code"});
  return object_of(std::move(fields), {"error"});
}

json::object responses_of(const Route& route) {
  json::object done;
  done["description"] = route.summary;
  const bool is_stream = route.path == "/generate" || route.path.ends_with("completions");
  json::object types =
      route.path == "/metrics" ? content("text/plain", typed("string")) : content("application/json", json::object{});
  if (is_stream) types["text/event-stream"] = json::object{{"schema", typed("string")}};
  done["content"] = std::move(types);
  json::object responses;
  responses["200"] = std::move(done);
  static const std::pair<const char*, const char*> kErrors[] = {
      {"400", "The request cannot be served as it stands"},
      {"401", "A key is needed"},
      {"404", "There is no such route or model"},
      {"405", "The route takes another method"},
      {"408", "The request did not arrive in time"},
      {"409", "The server is busy with what this would disturb"},
      {"413", "The body is too large"},
      {"429", "Too many requests wait"},
      {"431", "The head is too large"},
      {"500", "The server made an error"},
      {"503", "Starting, stopping, or broken"},
      {"504", "Not done within the deadline"}};
  for (const auto& [status, description] : kErrors) {
    json::object response;
    response["description"] = description;
    response["content"] = content("application/json", error_schema());
    responses[status] = std::move(response);
  }
  return responses;
}

json::object operation_of(const Route& route, const ServerContext& server) {
  json::object operation;
  std::string id(boost::beast::http::to_string(route.method));
  for (const char letter : route.path) id += std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
  operation["operationId"] = id;
  operation["summary"] = route.summary;
  json::array parameters;
  if (route.path.ends_with('/')) {
    json::object parameter{{"name", "id"}, {"in", "path"}, {"required", true}};
    parameter["schema"] = text(1, 100);
    parameters.push_back(std::move(parameter));
  }
  if (route.path == "/flush_cache") {
    json::object parameter{{"name", "timeout"}, {"in", "query"}, {"required", false}};
    json::object seconds = typed("number");
    seconds["minimum"] = 0;
    seconds["maximum"] = 1;
    parameter["schema"] = std::move(seconds);
    parameters.push_back(std::move(parameter));
  }
  if (!parameters.empty()) operation["parameters"] = std::move(parameters);
  if (auto body = body_of(route.path, server); body && route.method != boost::beast::http::verb::get) {
    json::object request;
    request["required"] = route.path != "/pause_generation";
    request["content"] = content("application/json", std::move(*body));
    operation["requestBody"] = std::move(request);
  }
  operation["responses"] = responses_of(route);
  if (route.access == RouteAccess::kOpen) operation["security"] = json::array{};
  return operation;
}

json::object document_of(const ServerContext& server) {
  json::object paths;
  for (const Route& route : route_list()) {
    const std::string path = std::string(route.path) + (route.path.ends_with('/') ? "{id}" : "");
    std::string method(boost::beast::http::to_string(route.method));
    std::transform(method.begin(), method.end(), method.begin(), [](unsigned char c) { return std::tolower(c); });
    if (!paths.contains(path)) paths[path] = json::object{};
    paths[path].as_object()[method] = operation_of(route, server);
  }
  json::object info;
  info["title"] = "Gimbal";
  info["version"] = "1";
  json::object scheme{{"type", "http"}, {"scheme", "bearer"}};
  json::object schemes;
  schemes["key"] = std::move(scheme);
  json::object components;
  components["securitySchemes"] = std::move(schemes);
  json::object document;
  document["openapi"] = "3.1.0";
  document["info"] = std::move(info);
  document["paths"] = std::move(paths);
  document["components"] = std::move(components);
  if (!server.api_key.empty() || !server.admin_key.empty()) {
    json::object need;
    need["key"] = json::array{};
    document["security"] = json::array{std::move(need)};
  }
  return document;
}

}  // namespace

boost::asio::awaitable<void> handle_openapi(Exchange& exchange) {
  co_await exchange.send_json(boost::beast::http::status::ok, document_of(exchange.server()));
}

}  // namespace gimbal
