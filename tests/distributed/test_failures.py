"""Ranks that die or hang, and layouts that cannot be: the end is quick, named, and leaves nothing behind."""
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MINI = ROOT / "models" / "kimi-k2-mini"
K26 = ROOT / "share" / "models" / "kimi-k2.6-config"
BINARY = os.environ.get("GIMBAL_BINARY", str(ROOT / "build" / "release" / "gimbal"))


def processes_with(marker):
    """{pid: (parent, environment)} of the living processes that carry the marker."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = dict(item.split("=", 1) for item in (entry / "environ").read_text(errors="replace").split("\0") if "=" in item)
            state, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if environment.get("GIMBAL_TEST_MARKER") == marker and state != "Z":
            found[int(entry.name)] = (int(parent), environment)
    return found


def worker_of(marker, rank):
    """The process that computes as `rank`: a child of the small parent that mpirun started."""
    alive = processes_with(marker)
    for pid, (parent, environment) in alive.items():
        if environment.get("OMPI_COMM_WORLD_RANK") == str(rank) and parent in alive and Path(f"/proc/{parent}/comm").read_text().strip() == "gimbal":
            return pid
    return None


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"no {what} within {seconds} s"
        time.sleep(0.01)
    return value


class Job:
    """A long `generate` under mpirun."""

    def __init__(self, folder, layout, count, *flags):
        self.marker = f"{folder.name}-{os.getpid()}"
        prompts = folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"id": str(i), "ids": [(i * 7 + k * 13) % 3800 for k in range(40)]}) + "\n" for i in range(200)))
        environment = os.environ | {"GIMBAL_TEST_MARKER": self.marker, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.process = subprocess.Popen(
            ["mpirun", "--oversubscribe", "-n", str(count), BINARY, "generate", "--model-path", str(MINI), "--input", str(prompts), "--layout", layout,
             "--max-new-tokens", "1000", "--ignore-eos", "--json", *flags],
            stdout=subprocess.DEVNULL, stderr=(folder / "stderr").open("w"), env=environment)
        self.stderr = folder / "stderr"

    def wait_until_it_computes(self):
        wait_for(lambda: "ranks share" in self.stderr.read_text() or "threads:" in self.stderr.read_text(), 60, "start")

    def end(self, seconds):
        code = self.process.wait(seconds)
        wait_for(lambda: not processes_with(self.marker), 5, "end of all processes")
        return code, self.stderr.read_text()

    def clean_up(self):
        for pid in processes_with(self.marker):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(10)


@pytest.fixture
def job(tmp_path):
    jobs = []

    def start(*arguments):
        jobs.append(Job(tmp_path, *arguments))
        return jobs[-1]

    yield start
    for started in jobs:
        started.clean_up()


@pytest.mark.parametrize("layout", ["ep4", "pp4", "tp4"])
def test_a_killed_rank_ends_the_job_with_its_name(job, layout):
    started = job(layout, 4)
    started.wait_until_it_computes()
    os.kill(wait_for(lambda: worker_of(started.marker, 2), 10, "rank 2"), signal.SIGKILL)
    before = time.monotonic()
    code, stderr = started.end(10)
    assert code == 1, stderr
    assert "rank 2 of 4" in stderr and "killed by signal 9" in stderr, stderr
    print(f"{layout}: ended {time.monotonic() - before:.1f} s after the kill")


@pytest.mark.parametrize("layout", ["ep4", "pp4", "tp4"])
def test_a_stuck_rank_is_named_with_verb_layer_and_step(job, layout):
    started = job(layout, 4, "--comm-timeout-s", "3")
    started.wait_until_it_computes()
    os.kill(wait_for(lambda: worker_of(started.marker, 2), 10, "rank 2"), signal.SIGSTOP)
    code, stderr = started.end(20)
    assert code == 1, stderr
    assert "rank 2" in stderr and "--comm-timeout-s" in stderr, stderr
    assert any(verb in stderr for verb in ("all_reduce", "all_to_all", "wait_signal", "receive", "all_gather", "host messages")), stderr


def run(*arguments, timeout=60, prefix=(), **options):
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.run([*prefix, BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, env=environment, **options)


@pytest.fixture
def one_line(tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_text('{"id": "a", "ids": [1, 2, 3]}\n')
    return path


def test_the_number_of_processes_must_be_that_of_ranks(one_line, tmp_path):
    result = run("score", "--model-path", MINI, "--input", one_line, "--output", tmp_path / "o", "--layout", "ep4",
                 prefix=("mpirun", "--oversubscribe", "-n", "2"))
    assert result.returncode == 2
    assert result.stderr.count("ranks: required 4 processes, offered 2 (mpirun -n), missing mpirun -n 4") == 1, result.stderr  # by one rank


def test_the_real_config_is_refused_at_once_with_every_rule(one_line, tmp_path):
    start = time.monotonic()
    result = run("score", "--model-path", K26, "--tokenizer-path", MINI, "--load-format", "dummy", "--input", one_line, "--output", tmp_path / "o",
                 "--layout", "pp62tp5ep11:layers60,1")
    seconds = time.monotonic() - start
    assert result.returncode == 2
    for rule in ("pipeline stages: required", "--pp-layer-partition: required", "attention heads: required", "intermediate_size of dense layers: required",
                 "experts: required", "moe_intermediate_size: required", "Nearest layouts that work"):
        assert rule in result.stderr, result.stderr
    print(f"refused in {seconds:.2f} s")


@pytest.mark.parametrize("content", [None, "", "[]", "{", "{\"logical_count\": 3}", "{\"logical_count\": [[1]]}", "{\"physical_to_logical_map\": []}",
                                     "[" * 5000, "{\"logical_count\": [], \"physical_to_logical_map\": []}", "\x00\x01"])
def test_placement_files_that_cannot_be_used(one_line, tmp_path, content):
    placement = tmp_path / "placement.json"
    if content is not None:
        placement.write_text(content)
    result = run("score", "--model-path", MINI, "--input", one_line, "--output", tmp_path / "o", "--layout", "ep4", "--init-expert-location", placement)
    assert result.returncode == 2 and "placement.json" in result.stderr, result.stderr
    assert len(result.stderr) < 1000, "an error is a paragraph"


def test_a_load_file_that_cannot_be_written_is_refused_first(one_line, tmp_path):
    result = run("score", "--model-path", MINI, "--input", one_line, "--output", tmp_path / "o", "--expert-load-output", tmp_path)
    assert result.returncode == 2 and "--expert-load-output" in result.stderr, result.stderr
    assert not (tmp_path / "o").exists()


def test_a_damaged_weight_is_named_in_every_layout(one_line, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for file in MINI.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    name = "model.layers.5.self_attn.kv_a_layernorm.weight"
    for shard in model.glob("*.safetensors"):
        data = bytearray(shard.read_bytes())
        length = int.from_bytes(data[:8], "little")
        entry = json.loads(data[8:8 + length]).get(name)
        if entry:
            at = 8 + length + entry["data_offsets"][0]
            data[at:at + 4] = b"\xff\xff\xff\xff"  # NaN in bfloat16 and in float32
            shard.write_bytes(data)
    for layout, prefix in (("single", ()), ("pp4", ()), ("tp8", ()), ("ep8", ()), ("ep4", ("mpirun", "--oversubscribe", "-n", "4"))):
        result = run("score", "--model-path", model, "--input", one_line, "--output", tmp_path / "o", "--layout", layout, prefix=prefix)
        assert result.returncode == 2 and name in result.stderr, (layout, result.returncode, result.stderr)


def test_a_rank_without_memory_ends_all(one_line, tmp_path):
    """The address space ends while ranks allocate: one error, no hang, no crash."""
    for layout in ("tp4", "ep8:low_latency"):
        result = run("score", "--model-path", MINI, "--input", one_line, "--output", tmp_path / "o", "--layout", layout, "--max-total-tokens", "4000000",
                     prefix=("prlimit", "--as=1500000000"))
        assert result.returncode in (1, 2), (layout, result.returncode, result.stderr)
        assert result.stderr.strip(), layout
