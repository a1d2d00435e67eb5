"""Rules that cannot be at zero at once: how many findings a file may still have. The counts only fall."""

import collections
import json

from source_tree import Finding

RATCHETS_PATH = "tools/source_check/ratchets.json"


def read_ratchets(text):
    """{rule: {path: count}}"""
    return json.loads(text) if text else {}


def apply_ratchets(findings, ratchets):
    """Findings beyond what the ratchets allow, and one for every ratchet that could be lower."""
    groups = collections.defaultdict(list)
    for finding in findings:
        groups[finding.rule, finding.path].append(finding)
    allowed = {(rule, path): count for rule, counts in ratchets.items() for path, count in counts.items()}
    remaining = []
    for key, group in groups.items():
        if len(group) > allowed.get(key, 0):
            remaining.extend(group)
    for (rule, path), count in allowed.items():
        found = len(groups.get((rule, path), ()))
        if found < count:
            message = f"allows {count} of {rule} in {path}, {found} are left: lower it (--lower-ratchets)"
            remaining.append(Finding("ratchets", RATCHETS_PATH, 0, message))
    return remaining


def lowered(findings, ratchets):
    """The same ratchets with every count that may fall, fallen; none rises."""
    counts = collections.Counter((finding.rule, finding.path) for finding in findings)
    result = {}
    for rule, paths in ratchets.items():
        kept = {path: min(count, counts[rule, path]) for path, count in paths.items() if counts[rule, path] > 0}
        if kept:
            result[rule] = kept
    return result


def raised(before, after):
    """A finding for every count that is higher than it was."""
    findings = []
    for rule, paths in after.items():
        for path, count in paths.items():
            was = before.get(rule, {}).get(path, 0)
            if count > was:
                findings.append(Finding("ratchets", RATCHETS_PATH, 0, f"{rule} in {path} rose from {was} to {count}"))
    return findings
