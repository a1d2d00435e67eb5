"""Many requests at once: the same tokens as alone, with pauses and shared pages; clients that vanish; keys, TLS, deadlines, a stuck engine."""
import json
import random
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from conftest import Server


def together(calls):
    results = [None] * len(calls)

    def run(i):
        results[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return results


def metric(server, name, headers=None):
    request = urllib.request.Request(server.url("/metrics"), headers=headers or {})
    text = urllib.request.urlopen(request, timeout=30).read().decode()
    values = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(re.escape(name) + r"[{ ]", line)]
    assert values, f"no {name}"
    return sum(values)


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.05)  # polling an outside process; bounded by the deadline


@pytest.mark.parametrize("layout", ["single", "tp2", "pp4", "ep4", "pp2ep2"])
def test_64_at_once_with_pauses_and_shared_pages_equal_solo(serve, layout):
    seed = 5
    print("seed", seed)
    rng = random.Random(seed)
    shared = [rng.randrange(3800) for _ in range(96)]
    bodies = []
    for i in range(64):
        prompt = (shared if i % 3 == 0 else []) + [rng.randrange(3800) for _ in range(rng.randrange(8, 200))]
        bodies.append({"input_ids": prompt, "priority": i % 3, "sampling_params": {"temperature": 0, "max_new_tokens": 24 + i % 17, "ignore_eos": True}})
    # The pool holds a tenth of what all need, so requests of higher priority push others out.
    server = serve("--layout", layout, "--max-total-tokens", "2048", "--context-length", "512", "--chunked-prefill-size", "128")
    ask = lambda body: server.request("/generate", body, timeout=300)
    solo = [ask(body) for body in bodies]
    assert server.request("/flush_cache", b"")[0] == 200
    crowd = together([lambda b=b: ask(b) for b in bodies])
    wrong = [i for i in range(64) if crowd[i][0] != 200 or crowd[i][1]["output_ids"] != solo[i][1]["output_ids"]]
    assert not wrong
    assert sum(r[1]["meta_info"]["cached_tokens"] for r in crowd) > 0
    if layout != "ep4":  # its four groups have a pool each, and none is full
        assert metric(server, "sglang:num_retracted_requests_total") > 0
    assert metric(server, "sglang:num_running_reqs") == 0
    assert metric(server, "sglang:num_used_tokens") == 0


def test_choices_of_one_prompt_share_its_pages_and_equal_single_requests(serve):
    server = serve()
    body = {"model": "kimi-k2-mini", "prompt": list(range(100, 180)), "max_tokens": 16, "temperature": 1, "seed": 40, "ignore_eos": True}
    many = server.request("/v1/completions", body | {"n": 4})[1]
    assert [c["index"] for c in many["choices"]] == [0, 1, 2, 3]
    for i in range(4):
        assert server.request("/v1/completions", body | {"seed": 40 + i})[1]["choices"][0]["text"] == many["choices"][i]["text"]
    assert many["usage"]["prompt_tokens"] == 80 and many["usage"]["completion_tokens"] == 64


def test_log_probabilities_agree_with_each_other(serve):
    server = serve()
    prompt = list(range(100, 140))
    body = {"input_ids": prompt, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 3, "sampling_params": {"temperature": 0, "max_new_tokens": 5, "ignore_eos": True}}
    first = server.request("/generate", body)[1]
    meta, output = first["meta_info"], first["output_ids"]
    assert [entry[1] for entry in meta["output_token_logprobs"]] == output
    assert [entry[1] for entry in meta["input_token_logprobs"]] == prompt and meta["input_token_logprobs"][0][0] is None
    for chosen, top in zip(meta["output_token_logprobs"], meta["output_top_logprobs"]):
        assert top[0][:2] == chosen[:2]  # greedy: the likeliest
    # What was an answer is scored the same as a prompt.
    again = server.request("/generate", body | {"input_ids": prompt + output})[1]["meta_info"]["input_token_logprobs"]
    for a, b in zip(meta["output_token_logprobs"], again[-5:]):
        assert abs(a[0] - b[0]) < 1e-3
    echo = server.request("/v1/completions", {"model": "kimi-k2-mini", "prompt": prompt, "echo": True, "logprobs": 0, "max_tokens": 1, "temperature": 0})[1]["choices"][0]["logprobs"]
    assert echo["token_logprobs"][0] is None
    for a, b in zip(echo["token_logprobs"][1:40], meta["input_token_logprobs"][1:]):
        assert abs(a - b[0]) < 1e-6


def test_penalties_and_biases_change_what_comes(serve):
    server = serve()
    base = {"model": "kimi-k2-mini", "prompt": "It was", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    plain = server.request("/v1/completions", base)[1]["choices"][0]["text"]
    ids = server.request("/v1/tokenize", {"prompt": plain})[1]["tokens"]
    banned = server.request("/v1/completions", base | {"logit_bias": {str(ids[0]): -100}})[1]["choices"][0]["text"]
    assert server.request("/v1/tokenize", {"prompt": banned})[1]["tokens"][0] != ids[0]
    varied = server.request("/v1/completions", base | {"frequency_penalty": 2, "presence_penalty": 2})[1]["choices"][0]["text"]
    tokens = server.request("/v1/tokenize", {"prompt": varied})[1]["tokens"]
    assert len(set(tokens)) > len(set(ids))


def test_a_deadline_ends_an_answer_with_504(serve):
    server = serve()
    status, body = server.request("/v1/completions", {"model": "kimi-k2-mini", "prompt": "a", "max_tokens": 4000, "ignore_eos": True, "deadline_ms": 50})
    assert status == 504 and body["error"]["code"] == "deadline_passed"
    wait_until(lambda: metric(server, "sglang:num_running_reqs") == 0)


def test_pause_in_every_mode_and_go_on(serve):
    server = serve()
    body = {"text": "a", "sampling_params": {"temperature": 0, "max_new_tokens": 600, "ignore_eos": True}}
    want = server.request("/generate", body)[1]["output_ids"]
    for mode in ("in_place", "retract"):
        answer = []
        thread = threading.Thread(target=lambda: answer.append(server.request("/generate", body, timeout=120)))
        thread.start()
        wait_until(lambda: metric(server, "sglang:num_running_reqs") == 1)
        assert server.request("/pause_generation", {"mode": mode})[0] == 200
        steps = metric(server, "gimbal_steps_total")
        assert server.request("/flush_cache", b"")[0] == (409 if mode == "in_place" else 200)
        assert metric(server, "gimbal_steps_total") == steps
        assert server.request("/continue_generation", b"")[0] == 200
        thread.join()
        assert answer[0][0] == 200 and answer[0][1]["output_ids"] == want
    answer = []
    thread = threading.Thread(target=lambda: answer.append(server.request("/generate", body, timeout=120)))
    thread.start()
    wait_until(lambda: metric(server, "sglang:num_running_reqs") == 1)
    assert server.request("/pause_generation", {})[0] == 200
    thread.join()
    assert answer[0][1]["meta_info"]["finish_reason"]["type"] == "abort"


def test_key_and_tls(tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")], check=True, capture_output=True)
    server = Server("--ssl-certfile", tmp_path / "cert.pem", "--ssl-keyfile", tmp_path / "key.pem", "--api-key", "k-secret")
    try:
        server.wait_until_ready()
        arguments = open(f"/proc/{server.process.pid}/cmdline", "rb").read()
        assert b"k-secret" not in arguments
        context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))

        def ask(path, body=None, key=None):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            data = json.dumps(body).encode() if body else None
            request = urllib.request.Request(f"https://127.0.0.1:{server.port}{path}", data=data, headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        assert ask("/health")[0] == 200
        assert ask("/server_info")[0] == 401
        status, info = ask("/server_info", key="k-secret")
        assert status == 200 and "k-secret" not in info
        body = {"model": "kimi-k2-mini", "prompt": "a", "max_tokens": 5, "stream": True}
        status, stream = ask("/v1/completions", body, key="k-secret")
        assert status == 200 and stream.rstrip().endswith("[DONE]")
        # A client that says goodbye in TLS frees its request.
        raw = context.wrap_socket(socket.create_connection(("127.0.0.1", server.port)), server_hostname="127.0.0.1")
        payload = json.dumps(body | {"max_tokens": 4000, "ignore_eos": True}).encode()
        raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k-secret\r\nContent-Length: %d\r\n\r\n" % len(payload) + payload)
        assert b"200" in raw.recv(100)
        raw.close()
        wait_until(lambda: 'sglang:num_running_reqs{engine_type="unified",model_name="kimi-k2-mini"} 0' in ask("/metrics", key="k-secret")[1])
        socket.create_connection(("127.0.0.1", server.port)).sendall(b"GET / HTTP/1.1\r\n\r\n")  # no TLS: closed, nothing else happens
        assert ask("/health")[0] == 200
        assert "k-secret" not in "".join(server.log)
    finally:
        server.stop()
