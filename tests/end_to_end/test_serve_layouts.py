"""The server in parallel layouts: same answers, no request lost, nothing left behind."""
import json
import os
import signal
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import MINI, run

BITWISE = ["pp2", "pp4:layers1,2,2,3", "ep4", "ep2:mpi", "ep4:low_latency", "pp2ep2"]


def requests(count=16):
    return [{"input_ids": [(31 * i + 7 * k) % 3800 for k in range(1 + (i * 37) % 150)],
             "sampling_params": {"temperature": 0.8 * (i % 2), "sampling_seed": i, "max_new_tokens": 4 + i % 20, "ignore_eos": True}}
            for i in range(count)]


def answers(server, bodies):
    with ThreadPoolExecutor(len(bodies)) as pool:
        results = list(pool.map(lambda body: server.request("/generate", body, timeout=120), bodies))
    assert [status for status, _ in results] == [200] * len(bodies), results
    return [answer["output_ids"] for _, answer in results]


@pytest.fixture(scope="module")
def single_answers(request):
    from conftest import Server
    server = Server().wait_until_ready()
    try:
        yield answers(server, requests())
    finally:
        server.stop()


@pytest.mark.parametrize("layout", BITWISE)
def test_concurrent_requests_get_the_answers_of_one_rank(serve, single_answers, layout):
    server = serve("--layout", layout, "--chunked-prefill-size", "96", "--max-running-requests", "12")
    assert answers(server, requests()) == single_answers
    info = server.request("/server_info")[1]
    assert info["layout"] == layout
    assert server.stop() == 0


@pytest.mark.parametrize("layout", ["tp4", "tep2", "tp2ep2", "dp2tp2:dense1"])
def test_tensor_parallel_answers_repeat(serve, layout):
    server = serve("--layout", layout, "--max-running-requests", "12")
    first = answers(server, requests())
    assert answers(server, requests()) == first  # other batches, same bits
    assert server.stop() == 0


def test_the_layout_is_told_once_at_start(serve):
    server = serve("--tp", "4", "--ep-size", "4", "--dp", "4", "--enable-dp-attention", "--moe-a2a-backend", "deepep")
    assert "in layout ep4 (4 threads)" in server.wait_for_line("ready at")
    notes = [line for line in server.log if "deepep" in line]
    assert len(notes) == 1 and "direct keeps the same contract" in notes[0]
    assert any("deepep" in note for note in server.request("/server_info")[1]["notes"])


def test_vanished_clients_leave_the_pipeline_usable(serve, single_answers):
    server = serve("--layout", "pp4", "--max-running-requests", "8")
    body = json.dumps({"input_ids": [5] * 40, "stream": True, "sampling_params": {"max_new_tokens": 2000, "ignore_eos": True}})
    for _ in range(3):
        clients = [subprocess.Popen(["curl", "-sN", "-d", body, server.url("/generate")], stdout=subprocess.PIPE) for _ in range(4)]
        for client in clients:
            client.stdout.readline()  # tokens flow
            client.kill()
            client.wait()
    assert answers(server, requests()) == single_answers


def test_more_tokens_than_low_latency_slots(serve):
    bodies = [{"input_ids": [(17 * i + 3 * k) % 3800 for k in range(300 if i == 0 else 8)],
               "sampling_params": {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}} for i in range(24)]
    expected = answers(serve("--layout", "single", "--max-running-requests", "24"), bodies)
    # Fewer slots than decode rows: such steps go the normal way.
    assert answers(serve("--layout", "ep4", "--low-latency-slots", "3", "--max-running-requests", "24"), bodies) == expected
    environment = os.environ | {"SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK": "16"}
    refused = run("serve", "--model-path", MINI, "--port", "0", "--layout", "ep4", "--deepep-mode", "low_latency", env=environment)
    assert refused.returncode == 2 and "16 slots per rank" in refused.stderr and "Required: " in refused.stderr, refused.stderr
    for slots in ("0", "-1", "many"):
        environment["SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"] = slots
        refused = run("serve", "--model-path", MINI, "--port", "0", "--layout", "ep4", env=environment)
        assert refused.returncode == 2 and slots in refused.stderr, refused.stderr


def poke(checkpoint, name, element, value):
    """Sets one float32 of a tensor in whichever shard holds it."""
    for shard in checkpoint.glob("*.safetensors"):
        data = shard.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        entry = json.loads(data[8:8 + length]).get(name)
        if entry is None:
            continue
        assert entry["dtype"] == "F32"
        with shard.open("r+b") as file:
            file.seek(8 + length + entry["data_offsets"][0] + 4 * element)
            file.write(struct.pack("<f", value))
        return
    raise AssertionError(f"no tensor {name}")


def test_every_token_to_the_last_rank(tmp_path):
    """Routing as skewed as it can be: in some layers all tokens choose the last eight experts."""
    model = tmp_path / "model"
    model.mkdir()
    for file in MINI.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    for layer in (1, 5):
        for expert in range(376, 384):
            poke(model, f"model.layers.{layer}.mlp.gate.e_score_correction_bias", expert, 1000.0)
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": "a", "ids": [(29 * k + 7) % 3800 for k in range(700)]}) + "\n")

    def scores(*flags):
        output = tmp_path / "out.jsonl"
        result = run("score", "--model-path", model, "--input", tmp_path / "in.jsonl", "--output", output, "--top-logits", "16", *flags)
        assert result.returncode == 0, result.stderr
        return [json.loads(line) for line in output.read_text().splitlines()][0]

    expected = scores()
    for layout in ("ep2", "ep4:low_latency", "ep8", "ep8:mpi"):
        assert scores("--layout", layout) == expected, layout
    for layout in ("tp8", "tep8"):
        found = scores("--layout", layout)
        differences = [abs(a - b) for x, y in zip(expected["nll"][1:], found["nll"][1:]) for a, b in [(x, y)]]
        assert max(differences) <= 5e-3, layout


def test_kill_leaves_no_shared_memory(serve):
    before = set(os.listdir("/dev/shm"))
    for _ in range(3):
        server = serve("--layout", "ep4")
        with ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(server.request, "/generate", {"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}})
                       for _ in range(2)]
            server.process.kill()
            server.process.wait(10)
            for future in futures:
                assert future.exception() is not None or future.result()[0] == 200
    assert set(os.listdir("/dev/shm")) <= before


def rank_processes(marker):
    """Worker processes of an mpirun job by rank, found by an environment variable."""
    found = {}
    for status in Path("/proc").glob("[0-9]*"):
        try:
            environment = dict(item.split("=", 1) for item in (status / "environ").read_text().split("\0") if "=" in item)
            parent = int((status / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if environment.get("GIMBAL_TEST_MARKER") == marker and Path(f"/proc/{parent}/comm").read_text().strip() == "gimbal":
                found[int(environment["OMPI_COMM_WORLD_RANK"])] = int(status.name)
        except (OSError, KeyError, ValueError):
            continue
    return found


def test_serve_with_processes_as_ranks(serve, single_answers, monkeypatch):
    marker = f"serve-{os.getpid()}"
    for key, value in {"GIMBAL_TEST_MARKER": marker, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}.items():
        monkeypatch.setenv(key, value)
    server = serve("--layout", "pp2", prefix=("mpirun", "--oversubscribe", "-n", "2"))
    assert "in layout pp2 (2 processes)" in server.wait_for_line("ready at")
    assert answers(server, requests()) == single_answers
    os.kill(rank_processes(marker)[0], signal.SIGTERM)
    assert server.process.wait(40) == 0
    assert rank_processes(marker) == {}
