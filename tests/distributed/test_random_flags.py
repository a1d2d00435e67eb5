"""Random products of the parallel flags: each is refused with reasons, or it runs and equals one rank.

GIMBAL_TEST_SEED repeats a run, GIMBAL_TEST_ROUNDS makes it longer.
"""
import json
import os
import random
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MINI = ROOT / "models" / "kimi-k2-mini"
BINARY = os.environ.get("GIMBAL_BINARY", str(ROOT / "build" / "release" / "gimbal"))
SEED = int(os.environ.get("GIMBAL_TEST_SEED", "20261201"))
ROUNDS = int(os.environ.get("GIMBAL_TEST_ROUNDS", "70"))
MOST_RANKS = 16
# Every refusal says what is in the way: one of these stands in it.
REASONS = re.compile(r"required|Required|allowed|contradicts|is not a list|whole replicas|is not a part|needs a number|does not divide|unknown|Names are built from", re.S)


def random_name(source):
    parts = [f"{axis}{source.choice(sizes)}" for axis, sizes in
             (("pp", (1, 2, 3, 8, 9)), ("dp", (1, 2, 3, 4)), ("tp", (1, 2, 4, 8, 3)), ("ep", (1, 2, 3, 4, 5, 8)), ("tep", (2, 4, 3)))
             if source.random() < 0.35]
    suffixes = [suffix for suffix in (":none", ":direct", ":mpi", ":normal", ":low_latency", ":dense1", ":layers4,4") if source.random() < 0.12]
    return "".join(parts or ["single"]) + "".join(suffixes)


GOOD_NAMES = ("single", "pp2", "pp4", "ep2", "ep3", "ep4", "ep8", "pp2ep2", "pp2ep4", "ep4:mpi", "ep2:low_latency", "tp2", "tp4", "tep2", "tp2ep2", "dp2tp2",
              "dp2ep2:none", "dp1tp4ep4", "pp2tp2", "pp2dp2tp2ep4")


def random_flags(source):
    flags = []
    mischief = source.choice((0.0, 1.0))  # half of the sets hold no values that are wrong by themselves
    if mischief == 0.0 and source.random() < 0.7:
        flags += ["--layout", source.choice(GOOD_NAMES)]
    elif source.random() < 0.5:
        flags += ["--layout", random_name(source)]
    else:
        for flag, sizes in (("--tp-size", (1, 2, 4, 8, 3)), ("--pp-size", (1, 2, 4, 9)), ("--ep-size", (1, 2, 4, 8, 5)), ("--dp-size", (1, 2, 4))):
            if source.random() < 0.5:
                flags += [flag, str(source.choice(sizes))]
        if source.random() < 0.7:
            flags += ["--enable-dp-attention"]
    for flag, values, chance in (
            ("--moe-dense-tp-size", ("none", "1", "2", "4", "x"), 0.3 * mischief),
            ("--moe-a2a-backend", ("auto", "none", "direct", "mpi", "deepep", "nixl", "flashinfer", "nonsense"), 0.5 * mischief),
            ("--deepep-mode", ("auto", "normal"), 0.3),
            ("--deepep-mode", ("normal", "low_latency"), 0.2 * mischief),
            ("--low-latency-slots", ("4096", "1000"), 0.2),
            ("--low-latency-slots", ("1", "7", "64", "0"), 0.2 * mischief),
            ("--ep-num-redundant-experts", ("0", "1", "4", "16", "-1"), 0.3 * mischief),
            ("--ep-dispatch-algorithm", ("auto", "dynamic"), 0.2),
            ("--pp-layer-partition", ("4,4", "5,3", "1,7", "3,3,2", "0,8", "4;4"), 0.3 * mischief),
            ("--pp-async-batch-depth", ("0", "1", "5"), 0.2),
            ("--max-running-requests", ("1", "2", "5"), 0.3),
            ("--chunked-prefill-size", ("1", "16", "100", "-1"), 0.3),
            ("--page-size", ("1", "7", "64"), 0.2)):
        if source.random() < chance and flag not in flags:
            flags += [flag, source.choice(values)]
    return flags


def score(folder, *flags):
    output = folder / "out.jsonl"
    output.unlink(missing_ok=True)
    result = subprocess.run([BINARY, "score", "--model-path", str(MINI), "--input", str(folder / "in.jsonl"), "--output", str(output),
                             "--top-logits", "32", "--comm-timeout-s", "50", *flags], capture_output=True, text=True, timeout=60, errors="replace")
    return result, output.read_bytes() if output.exists() else None


def num_ranks(flags):
    """A bound from the flags alone, so that no test starts hundreds of threads."""
    sizes = [int(size) for _, size in re.findall(r"(pp|dp|tp|ep|tep)(\d+)", " ".join(flags))]
    sizes += [int(b) for a, b in zip(flags, flags[1:]) if a in ("--tp-size", "--pp-size")]
    product = 1
    for size in sizes:
        product *= size
    return product


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flags")
    rows = [{"id": str(i), "ids": [(41 * i + 13 * k) % 3800 for k in range(length)]} for i, length in enumerate((1, 33, 2, 70, 7))]
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def largest_difference(expected, found):
    largest = 0.0
    for want, got in zip(map(json.loads, expected.splitlines()), map(json.loads, found.splitlines()), strict=True):
        for want_ids, want_logits, got_ids, got_logits in zip(*(row.get(key, []) for row in (want, got) for key in ("top_ids", "top_logits"))):
            a, b = dict(zip(want_ids, want_logits)), dict(zip(got_ids, got_logits))
            largest = max([largest, *(abs(a[key] - b[key]) for key in a.keys() & b.keys())])
    return largest


def is_bitwise(name):
    """No sum is split: nothing but stages and whole experts that tokens travel to."""
    return set(re.findall(r"[a-z]+(?=\d)", name.split(":")[0])) <= {"pp", "ep"} and ":none" not in name


def test_random_flags_are_refused_or_equal(folder):
    print(f"seed {SEED}, {ROUNDS} rounds")
    source = random.Random(SEED)
    result, expected = score(folder)
    assert result.returncode == 0, result.stderr
    num_equal = num_near = num_refused = 0
    for _ in range(ROUNDS):
        flags = random_flags(source)
        if num_ranks(flags) > MOST_RANKS * 4:
            continue
        result, found = score(folder, *flags)
        told = f"seed {SEED}: {' '.join(flags)}\nexit {result.returncode}\n{result.stderr[-1500:]}"
        assert result.returncode in (0, 2), told
        if result.returncode == 2:
            assert found is None and REASONS.search(result.stderr), told
            num_refused += 1
            continue
        layout = re.search(r"note: layout: (\S+)", result.stderr)
        if layout is None or is_bitwise(layout[1]):
            assert found == expected, told
            num_equal += 1
        else:
            assert largest_difference(expected, found) <= 5e-3, told
            num_near += 1
    print(f"{num_equal} equal, {num_near} within tolerance, {num_refused} refused")
    assert num_equal >= ROUNDS // 8 and num_refused >= ROUNDS // 8
