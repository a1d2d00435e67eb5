#!/usr/bin/env python3
"""One-thread encode throughput against the Python package tiktoken: the same 10 MB text, the same vocabulary, interleaved rounds.
usage: compare_with_tiktoken.py [--build-dir build/release] [--model models/kimi-k2-mini] [--rounds 7] [--megabytes 10]"""
import argparse
import base64
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATTERN = "|".join([
    r"""[\p{Han}]+""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""\p{N}{1,3}""",
    r""" ?[^\s\p{L}\p{N}]+[\r\n]*""",
    r"""\s*[\r\n]+""",
    r"""\s+(?!\S)""",
    r"""\s+""",
])


def make_text(megabytes, seed=1):
    """Prose, code and CJK from seeded words, in lines."""
    draw = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(draw.choices(letters, weights=range(26, 0, -1), k=draw.randint(1, 10))) for _ in range(20000)]
    names = [w.title() + v.title() for w, v in zip(words[::7], words[3::7])]
    parts, size = [], 0
    while size < megabytes * 1_000_000:
        kind = draw.random()
        if kind < 0.7:
            line = " ".join(draw.choices(words, k=draw.randint(5, 16))).capitalize() + draw.choice([".\n", ", ", "! ", "?\n\n", "'s "])
        elif kind < 0.9:
            line = f"    if ({draw.choice(names)}_{draw.randint(0, 9999)} == {draw.choice(words)}[{draw.randint(0, 99)}]) {{ return {draw.random():.6f}; }}\n"
        else:
            line = "".join(chr(draw.randint(0x4E00, 0x9FA5)) for _ in range(draw.randint(3, 30))) + draw.choice(["\u3002", "\n", " "])
        parts.append(line)
        size += len(line.encode())
    return "".join(parts)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build-dir", default=str(ROOT / "build" / "release"))
    options.add_argument("--model", default=str(ROOT / "models" / "kimi-k2-mini"))
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--megabytes", type=float, default=10)
    options = options.parse_args()
    try:
        import tiktoken
    except ImportError:
        sys.exit("tiktoken is not installed here: python3 -m venv build/venv && build/venv/bin/pip install tiktoken, then run this with build/venv/bin/python")

    ranks = {}
    for line in (Path(options.model) / "tiktoken.model").read_text().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    reference = tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    text = make_text(options.megabytes)
    megabytes = len(text.encode()) / 1e6
    # The published wrapper hands tiktoken 400,000 characters at a time; Gimbal cuts in the same places.
    slices = [text[i : i + 400000] for i in range(0, len(text), 400000)]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        program = subprocess.Popen([f"{options.build_dir}/benchmarks/tokenizer/tokenizer_throughput", options.model, file.name],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ours, theirs = [], []
        for round_number in range(options.rounds + 1):
            program.stdin.write("\n")
            program.stdin.flush()
            answer = json.loads(program.stdout.readline())
            start = time.perf_counter()
            ids = [token for part in slices for token in reference.encode_ordinary(part)]
            seconds = time.perf_counter() - start
            if round_number == 0:  # a warm-up that checks that both do the same work
                checksum = 0
                for token in ids:
                    checksum = (checksum * 31 + token) % 1000000007
                if (checksum, len(ids)) != (answer["checksum"], answer["tokens"]):
                    sys.exit("the two encodings differ")
                continue
            ours.append(megabytes / answer["seconds"])
            theirs.append(megabytes / seconds)
        program.stdin.close()
        program.wait()
    ratios = [a / b for a, b in zip(ours, theirs)]
    print(f"{megabytes:.1f} MB, {len(ids)} tokens, {options.rounds} interleaved rounds, one thread, equal ids")
    print(f"gimbal   {statistics.median(ours):7.2f} MB/s (min {min(ours):.2f}, max {max(ours):.2f})")
    print(f"tiktoken {statistics.median(theirs):7.2f} MB/s (min {min(theirs):.2f}, max {max(theirs):.2f})")
    print(f"ratio gimbal/tiktoken: median {statistics.median(ratios):.2f}, min {min(ratios):.2f}, max {max(ratios):.2f}")


if __name__ == "__main__":
    main()
