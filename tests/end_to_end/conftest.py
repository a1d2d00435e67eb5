"""Starts the real program; GIMBAL_BINARY names it."""
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MINI = ROOT / "models" / "kimi-k2-mini"
BINARY = os.environ.get("GIMBAL_BINARY", str(ROOT / "build" / "release" / "gimbal"))


def run(*arguments, timeout=120, prefix=(), **options):
    return subprocess.run([*prefix, BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, errors="replace", **options)


class Server:
    """A server on a free port, read from its log. Ended by its process id."""

    def __init__(self, *flags, model=MINI, prefix=()):
        self.start = time.monotonic()
        command = [*prefix, BINARY, "serve", "--model-path", str(model), "--port", "0", *map(str, flags)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.log = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.port = int(re.search(r"listening on https?://\S+:(\d+)", self.wait_for_line("listening on")).group(1))

    def _read(self):
        for line in self.process.stderr:
            with self.changed:
                self.log.append(line)
                self.changed.notify_all()
        with self.changed:
            self.log.append("")
            self.changed.notify_all()

    def wait_for_line(self, text, timeout=60):
        with self.changed:
            found = self.changed.wait_for(lambda: next((l for l in self.log if text in l), None) or self.log[-1:] == [""], timeout)
            line = next((l for l in self.log if text in l), None)
        assert line, f"no '{text}' in: {''.join(self.log)} ({found})"
        return line

    def wait_until_ready(self):
        self.wait_for_line("ready at")
        self.seconds_to_ready = time.monotonic() - self.start
        return self

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def request(self, path, body=None, timeout=60):
        """(status, parsed body)"""
        data = None if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url(path), data=data), timeout=timeout) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def resident_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.reader.join(10)
        return code


@pytest.fixture
def serve():
    servers = []

    def start(*flags, ready=True, **options):
        servers.append(Server(*flags, **options))
        return servers[-1].wait_until_ready() if ready else servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
