"""The server from outside: README's example, figures, streams, signals, limits."""
import json
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request

from conftest import BINARY, MINI, ROOT, run


def chat(text, **more):
    return {"model": "kimi-k2-mini", "messages": [{"role": "user", "content": text}], "temperature": 0, **more}


def test_the_readme_example_answers_as_printed(serve):
    blocks = re.findall(r"```(?:json)?\n(.*?)\n```", (ROOT / "README.md").read_text(), re.S)
    command = next(b for b in blocks if b.startswith("curl localhost:30000"))
    want = json.loads(next(b for b in blocks if b.startswith("{")))
    server = serve()
    done = subprocess.run(command.replace("curl localhost:30000", f"curl -s localhost:{server.port}"), shell=True, capture_output=True, text=True, timeout=60)
    got = json.loads(done.stdout)
    assert got["choices"] == want["choices"]
    assert got["usage"] == want["usage"]


def test_ready_time_and_memory(serve):
    server = serve()
    for _ in range(20):
        status, _ = server.request("/v1/completions", {"model": "kimi-k2-mini", "prompt": "It was", "max_tokens": 32})
        assert status == 200
    size = sum(f.stat().st_size for f in MINI.glob("*.safetensors"))
    print(f"ready {server.seconds_to_ready:.2f} s after the start; resident {server.resident_bytes() / 1e6:.1f} MB = {server.resident_bytes() / size:.2f} x the checkpoint's {size / 1e6:.1f} MB")
    assert server.resident_bytes() <= 3 * size


def test_concurrent_requests_get_their_solo_answers(serve):
    server = serve()
    bodies = [chat("Tell me " + "very " * i + "much", max_tokens=24, ignore_eos=True) for i in range(24)]
    want = [server.request("/v1/chat/completions", body)[1]["choices"] for body in bodies]
    got = [None] * len(bodies)

    def ask(i):
        got[i] = server.request("/v1/chat/completions", bodies[i])[1]["choices"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert got == want
    info = server.request("/server_info")[1]["internal_states"]
    assert info["num_running_reqs"] == 0 and info["num_used_tokens"] == 0


def test_seeds_repeat_and_differ(serve):
    server = serve()

    def text(seed):
        return server.request("/v1/completions", {"model": "kimi-k2-mini", "prompt": "Once", "max_tokens": 24, "temperature": 1, "seed": seed, "ignore_eos": True})[1]["choices"][0]["text"]

    assert text(7) == text(7)
    assert len({text(seed) for seed in range(4)}) > 1


def open_stream(server, max_tokens):
    body = json.dumps(chat("Hello", max_tokens=max_tokens, ignore_eos=True, stream=True)).encode()
    answer = urllib.request.urlopen(urllib.request.Request(server.url("/v1/chat/completions"), data=body), timeout=60)
    assert answer.readline().startswith(b"data: ")
    return answer


def test_sigterm_lets_a_running_stream_finish(serve):
    server = serve()
    stream = open_stream(server, 400)
    server.process.send_signal(signal.SIGTERM)
    server.wait_for_line("no new requests")
    rest = stream.read().decode()
    assert rest.rstrip().endswith("data: [DONE]")
    assert '"finish_reason":"length"' in rest
    assert server.process.wait(40) == 0


def test_a_drain_that_takes_too_long_aborts_what_is_left(serve):
    server = serve("--drain-timeout-s", "0")
    stream = open_stream(server, 4000)
    server.process.send_signal(signal.SIGTERM)
    rest = stream.read().decode()
    assert '"finish_reason":"abort"' in rest
    assert server.process.wait(40) == 0


def test_a_second_signal_ends_at_once(serve):
    server = serve("--drain-timeout-s", "600")
    stream = open_stream(server, 4000)  # keeps the drain waiting
    server.process.send_signal(signal.SIGINT)
    server.wait_for_line("no new requests")
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(40) == 128 + signal.SIGINT
    stream.close()


def test_vanished_clients_free_their_pages(serve):
    server = serve()
    for _ in range(8):
        stream = open_stream(server, 4000)
        stream.close()
    deadline = time.monotonic() + 30
    while server.request("/server_info")[1]["internal_states"]["num_running_reqs"] and time.monotonic() < deadline:
        time.sleep(0.02)  # polling an outside process; bounded by the deadline
    assert server.request("/server_info")[1]["internal_states"]["num_used_tokens"] == 0


def test_a_taken_port_is_refused_before_the_model_is_read(tmp_path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = run("serve", "--model-path", MINI, "--port", port)
    assert done.returncode == 1
    assert str(port) in done.stderr and "loading" not in done.stderr


def test_dummy_weights_need_only_a_config(serve, tmp_path):
    config = json.loads((MINI / "config.json").read_text())
    config.update(num_hidden_layers=3, n_routed_experts=16)
    (tmp_path / "config.json").write_text(json.dumps(config))
    server = serve("--load-format", "dummy", model=tmp_path)
    status, answer = server.request("/v1/completions", {"model": tmp_path.name, "prompt": "any text", "max_tokens": 5, "ignore_eos": True})
    assert status == 200 and answer["usage"]["completion_tokens"] == 5
    assert any("made-up vocabulary" in note for note in server.request("/server_info")[1]["notes"])


def test_affinity_sets_the_threads(serve):
    server = serve(prefix=["taskset", "-c", "0"])
    assert server.request("/server_info")[1]["threads"] == 1


def test_a_model_larger_than_memory_is_refused_before_reading(tmp_path):
    (tmp_path / "config.json").write_text((ROOT / "share/models/kimi-k2.6-config/config.json").read_text())
    done = run("serve", "--model-path", tmp_path, "--load-format", "dummy", "--port", "0", timeout=60)
    assert done.returncode == 2
    for part in ("Required:", "Offered:", "Missing:", "weights"):
        assert part in done.stderr


def test_endless_runs_of_one_character_are_refused_beside_a_stream(serve):
    server = serve()
    stream = open_stream(server, 600)
    for text in ("a" * 200_000, "\u4e16" * 200_000, "^" * 1_000_000, " " * 400_000):
        status, answer = server.request("/v1/completions", {"model": "kimi-k2-mini", "prompt": text, "max_tokens": 1})
        assert status == 400 and "4096" in answer["error"]["message"]
    assert stream.read().decode().rstrip().endswith("data: [DONE]")


def test_wrong_requests_are_named_and_harm_nobody(serve):
    server = serve()
    for path, body, field in [
        ("/v1/completions", b"{oops", "JSON"),
        ("/v1/completions", b'{"model":"kimi-k2-mini","prompt":"a","temperature":NaN}', "JSON"),
        ("/v1/completions", {"model": "kimi-k2-mini", "prompt": "a", "max_tokens": 0}, "max_tokens"),
        ("/v1/completions", {"model": "kimi-k2-mini", "prompt": ""}, "prompt"),
        ("/v1/completions", {"model": "kimi-k2-mini", "prompt": list(range(1, 4000)) + [1] * 200}, "context"),
        ("/v1/chat/completions", chat("x " * 9000), "context"),
        ("/v1/chat/completions", chat("x", max_tokens=10**15), "context"),
        ("/generate", {"text": "a", "sampling_params": {"temperature": "hot"}}, "temperature"),
    ]:
        status, answer = server.request(path, body)
        assert status == 400, (path, body, answer)
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        assert field in answer["error"]["message"], answer
    assert server.request("/v1/completions", {"model": "nobody", "prompt": "a"})[0] == 404
    assert server.request("/health")[0] == 200
    assert BINARY
