"""Every layout computes the function of one rank: byte for byte where no sum is split, within 5e-3 where one is.

Runs the program from outside: `score` for prompts, `generate` for 64 decode steps of several sequences, so that micro-batches,
idle DP groups, prompt chunks and both modes of the exchange take part. Writes build/layout_matrix.txt.
"""
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MINI = ROOT / "models" / "kimi-k2-mini"
BINARY = os.environ.get("GIMBAL_BINARY", str(ROOT / "build" / "release" / "gimbal"))
TOLERANCE = 5e-3
SCORE_LOGITS, DECODE_LOGITS, NEW_TOKENS = 64, 16, 64


@dataclass(frozen=True)
class Case:
    layout: str
    flags: tuple = ()
    processes: int = 0  # under mpirun; 0: threads
    is_bitwise: bool = True
    is_representative: bool = False

    @property
    def name(self):
        flags = "".join(" " + " ".join(self.flags)) if self.flags else ""
        return f"{self.layout}{flags}{f' mpirun -n {self.processes}' if self.processes else ''}"


def bitwise(layout, *flags, processes=0, representative=False):
    return Case(layout, flags, processes, True, representative)


def near(layout, *flags, processes=0, representative=False):
    return Case(layout, flags, processes, False, representative)


CASES = [
    # pipeline
    bitwise("pp2", representative=True), bitwise("pp3"), bitwise("pp4", "--pp-async-batch-depth", "2", representative=True), bitwise("pp6"),
    bitwise("pp8", representative=True), bitwise("pp2:layers5,3"), bitwise("pp3:layers1,6,1", "--chunked-prefill-size", "24", representative=True),
    bitwise("pp8", "--pp-async-batch-depth", "3", "--chunked-prefill-size", "40"),
    # expert parallel with an exchange, DP attention
    bitwise("ep2", representative=True), bitwise("ep3"), bitwise("ep4"), bitwise("ep6"), bitwise("ep8", representative=True),
    bitwise("ep2:normal"), bitwise("ep4:normal", representative=True), bitwise("ep8:normal"),
    bitwise("ep2:low_latency"), bitwise("ep3:low_latency"), bitwise("ep4:low_latency", representative=True), bitwise("ep8:low_latency"),
    bitwise("ep2:mpi"), bitwise("ep4:mpi:normal", representative=True), bitwise("ep4:mpi:low_latency"), bitwise("ep8:mpi"),
    bitwise("ep6:mpi:low_latency"), bitwise("ep4", "--load-balance-method", "round_robin", "--chunked-prefill-size", "32"),
    bitwise("ep5", "--ep-num-redundant-experts", "1", representative=True),
    bitwise("ep8", "--ep-num-redundant-experts", "16", "--init-expert-location", "{load}", representative=True),
    bitwise("ep4:low_latency", "--ep-num-redundant-experts", "4", "--ep-dispatch-algorithm", "dynamic"),
    bitwise("ep8", "--low-latency-slots", "1", representative=True), bitwise("ep3:normal", "--max-running-requests", "3"),
    bitwise("pp2ep2", representative=True), bitwise("pp2ep4"), bitwise("pp4ep2"), bitwise("pp2ep3:mpi"), bitwise("pp2ep4:low_latency"),
    bitwise("pp3ep2:layers2,2,4:mpi:low_latency", representative=True), bitwise("pp2ep4:mpi:normal", "--pp-async-batch-depth", "1", representative=True),
    # tensor parallel and exchange none
    near("tp2", representative=True), near("tp4"), near("tp8", representative=True), near("tp4:dense1", representative=True), near("tp8", "--chunked-prefill-size", "32"),
    near("tep2"), near("tep4"), near("tep8", representative=True), near("tep8:dense1"),
    near("tep8", "--ep-num-redundant-experts", "8", "--init-expert-location", "{load}"),
    near("dp2ep2:none"), near("dp4ep4:none", representative=True), near("dp8ep8:none"), near("dp3ep3:none"), near("dp2"), near("dp4"),
    near("dp2tp2"), near("dp2tp4"), near("dp4tp2:dense1", representative=True), near("dp1tp8ep2:none"), near("dp2tp2ep2:none", representative=True),
    # everything together
    near("tp2ep2", representative=True), near("tp4ep2"), near("tp2ep4", "--deepep-mode", "low_latency"), near("dp2tp4ep8", representative=True),
    near("dp1tp4ep4"), near("dp1tp8ep8", representative=True), near("dp1tp2ep2:low_latency"), near("dp2tp2ep4:mpi:normal", representative=True), near("dp4tp2ep8:mpi:low_latency"),
    near("dp2tp4ep2:dense1"), near("dp3tp2ep3"), near("pp2tp2", representative=True), near("pp2tp4"), near("pp4tp2"), near("pp2tep2"),
    near("pp2tep4"), near("pp2tp2ep2"), near("pp2dp2tp2ep4:low_latency", representative=True), near("pp2dp1tp4ep4:mpi"), near("pp2dp2ep2:none"),
    # ranks as processes
    bitwise("ep8", processes=8, representative=True), bitwise("pp8", processes=8), bitwise("pp2ep4", processes=8), bitwise("pp2", processes=2),
    bitwise("ep4:mpi:low_latency", processes=4, representative=True), bitwise("ep3", processes=3), near("tp8", processes=8),
    near("dp2tp2", processes=4), near("dp2tp2ep4", processes=4), near("tep2", processes=2, representative=True),
]


def run(case, command, *arguments, load=None):
    flags = [flag.replace("{load}", str(load)) for flag in case.flags]
    line = [BINARY, command, "--model-path", str(MINI), "--layout", case.layout, "--comm-timeout-s", "100", *flags, *map(str, arguments)]
    environment = os.environ.copy()
    if case.processes:
        line = ["mpirun", "--oversubscribe", "-n", str(case.processes), *line]
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    result = subprocess.run(line, capture_output=True, timeout=300, env=environment)
    assert result.returncode == 0, f"{' '.join(line)}\nexit {result.returncode}: {result.stderr.decode(errors='replace')[-2000:]}"
    return result


@dataclass
class Answers:
    score: bytes
    decode: bytes


class Runner:
    def __init__(self, folder):
        self.folder = folder
        goldens = json.loads((ROOT / "tests/golden/data/model/goldens.json").read_text())["cases"]
        self.score_input, self.prompts, self.load = folder / "score.jsonl", folder / "prompts.jsonl", folder / "load.json"
        texts = [case["prompt"] + case["greedy_text"] for case in goldens]
        self.score_input.write_text("".join(json.dumps({"id": str(i), "text": text}) + "\n" for i, text in enumerate(texts)))
        self.prompts.write_text("".join(json.dumps({"id": str(i), "prompt": case["prompt"]}) + "\n" for i, case in enumerate(goldens[:7])))
        single = Case("single")
        self.single = self.answers(single, "--expert-load-output", self.load)

    def answers(self, case, *score_flags):
        output = self.folder / "out.jsonl"
        run(case, "score", "--input", self.score_input, "--output", output, "--top-logits", SCORE_LOGITS, *score_flags, load=self.load)
        decoded = run(case, "generate", "--input", self.prompts, "--max-new-tokens", NEW_TOKENS, "--ignore-eos", "--json",
                      "--top-logits", DECODE_LOGITS, load=self.load)
        return Answers(output.read_bytes(), decoded.stdout)


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    return Runner(tmp_path_factory.mktemp("matrix"))


@dataclass
class Row:
    case: Case
    score_difference: float = 0.0
    decode_difference: float = 0.0
    equal_ids: int = 0
    num_ids: int = 0
    seconds: float = 0.0
    verdict: str = "FAILED"


@pytest.fixture(scope="module")
def table():
    rows = []
    yield rows
    lines = [f"{'layout':<62} {'class':<9} {'prompt':>8} {'decode':>8} {'ids':>9} {'s':>6}  verdict"]
    for row in rows:
        kind = "bitwise" if row.case.is_bitwise else "tolerance"
        lines.append(f"{row.case.name:<62} {kind:<9} {row.score_difference:8.1e} {row.decode_difference:8.1e} "
                     f"{row.equal_ids:>4}/{row.num_ids:<4} {row.seconds:6.1f}  {row.verdict}")
    text = "\n".join(lines) + "\n"
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "layout_matrix.txt").write_text(text)
    print("\n" + text)


def logits_of(ids, logits):
    return [dict(zip(row_ids, row_logits)) for row_ids, row_logits in zip(ids, logits)]


def row_difference(a, b):
    return max((abs(a[key] - b[key]) for key in a.keys() & b.keys()), default=0.0)


def score_difference(expected, found):
    largest = 0.0
    pairs = list(zip(map(json.loads, expected.splitlines()), map(json.loads, found.splitlines()), strict=True))
    for want, got in pairs[:-1]:
        assert want["ids"] == got["ids"] and len(want["nll"]) == len(got["nll"])
        for a, b in zip(logits_of(want["top_ids"], want["top_logits"]), logits_of(got["top_ids"], got["top_logits"]), strict=True):
            assert len(a.keys() & b.keys()) >= SCORE_LOGITS // 2
            largest = max(largest, row_difference(a, b))
        largest = max([largest, *(abs(a - b) for a, b in zip(want["nll"][1:], got["nll"][1:]))])
    return largest


def decode_difference(expected, found):
    """(largest difference up to the first id that differs, equal ids, ids); behind it the contexts are not the same."""
    largest, equal, total = 0.0, 0, 0
    for want, got in zip(map(json.loads, expected.splitlines()), map(json.loads, found.splitlines()), strict=True):
        assert len(want["output_ids"]) == len(got["output_ids"]) == NEW_TOKENS
        total += NEW_TOKENS
        rows = zip(logits_of(want["top_ids"], want["top_logits"]), logits_of(got["top_ids"], got["top_logits"]))
        for (a, b), wanted_id, id in zip(rows, want["output_ids"], got["output_ids"]):
            largest = max(largest, row_difference(a, b))
            if wanted_id != id:
                break
            equal += 1
    return largest, equal, total


def parameters():
    for case in CASES:
        marks = [pytest.mark.matrix] + ([pytest.mark.representative] if case.is_representative else [])
        yield pytest.param(case, id=case.name.replace(" ", "_").replace("{load}", "load"), marks=marks)


@pytest.mark.parametrize("case", parameters())
def test_layout_equals_one_rank(runner, table, case):
    row = Row(case)
    table.append(row)
    start = time.monotonic()
    found = runner.answers(case)
    row.seconds = time.monotonic() - start
    row.score_difference = score_difference(runner.single.score, found.score)
    row.decode_difference, row.equal_ids, row.num_ids = decode_difference(runner.single.decode, found.decode)
    if case.is_bitwise:
        assert found.score == runner.single.score
        assert found.decode == runner.single.decode
    else:
        assert row.score_difference <= TOLERANCE and row.decode_difference <= TOLERANCE
        again = runner.answers(case)
        assert again.score == found.score and again.decode == found.decode, "not the same bits in two runs"
    row.verdict = "equal" if case.is_bitwise else "within, repeats"


def test_the_matrix_is_large_enough():
    assert len({case.name for case in CASES}) == len(CASES) >= 60
    assert sum(case.is_representative for case in CASES) * 3 >= len(CASES)
