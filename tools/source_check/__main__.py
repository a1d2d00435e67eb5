"""Checks the repository against its own rules: python3 tools/source_check [--headers].

Exit 0: clean. Exit 1: findings, one a line. CONTRIBUTING.md explains the rules.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import code_rules
import header_check
import layering_rules
import ratchets
from source_tree import SourceTree

ROOT = Path(__file__).resolve().parents[2]


def all_findings(tree):
    return [finding for rule in (*layering_rules.RULES, *code_rules.RULES) for finding in rule(tree)]


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="source_check", description="Checks the repository against its own rules.")
    parser.add_argument("--root", default=ROOT, type=Path, help="repository to check (this one)")
    parser.add_argument(
        "--headers", action="store_true", help="also compile every header alone (minutes when nothing is cached)"
    )
    parser.add_argument(
        "--against", metavar="REVISION", help="also refuse ratchets that are higher than in that git revision"
    )
    parser.add_argument("--lower-ratchets", action="store_true", help="write the counts that fell; never raises one")
    return parser.parse_args(arguments)


def ratchets_of_revision(root, revision):
    """The ratchets of a revision, or None when it has none (then there is nothing to compare with)."""
    command = ["git", "-C", str(root), "show", f"{revision}:{ratchets.RATCHETS_PATH}"]
    git = subprocess.run(command, capture_output=True, text=True, check=False)
    return ratchets.read_ratchets(git.stdout) if git.returncode == 0 else None


def main(arguments):
    options = parse_arguments(arguments)
    tree = SourceTree(options.root)
    allowed = ratchets.read_ratchets(tree.text(ratchets.RATCHETS_PATH))
    findings = all_findings(tree)
    if options.headers:
        findings += header_check.check_headers(tree)
    if options.lower_ratchets:
        allowed = ratchets.lowered(findings, allowed)
        text = json.dumps(allowed, indent=2, sort_keys=True) + "\n"
        (options.root / ratchets.RATCHETS_PATH).write_text(text, encoding="utf-8")
    remaining = ratchets.apply_ratchets(findings, allowed)
    if options.against:
        before = ratchets_of_revision(options.root, options.against)
        remaining += ratchets.raised(before, allowed) if before is not None else []
    for finding in sorted(remaining, key=lambda one: (one.path, one.line, one.rule)):
        print(finding)
    num_allowed = sum(count for counts in allowed.values() for count in counts.values())
    print(f"source_check: {len(tree.paths)} files, {len(remaining)} findings, {num_allowed} allowed by ratchets")
    return 1 if remaining else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
