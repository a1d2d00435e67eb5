"""The openai package as a client, installed from PyPI into build/venv-openai; skipped with a line where PyPI is not reachable."""
import subprocess
import sys

import pytest
from conftest import ROOT

CLIENT = """
import sys
from openai import OpenAI, BadRequestError, NotFoundError
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
name = client.models.list().data[0].id
messages = [{"role": "user", "content": "Hello"}]
whole = client.chat.completions.create(model=name, messages=messages, max_tokens=12, temperature=0, extra_body={"ignore_eos": True})
assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 12
stream = client.chat.completions.create(model=name, messages=messages, max_tokens=12, temperature=0, stream=True, stream_options={"include_usage": True}, extra_body={"ignore_eos": True})
text, usage, finishes = "", None, []
for chunk in stream:
    usage = chunk.usage or usage
    for choice in chunk.choices:
        text += choice.delta.content or ""
        finishes += [choice.finish_reason] if choice.finish_reason else []
assert text == whole.choices[0].message.content, (text, whole.choices[0].message.content)
assert finishes == ["length"] and usage.completion_tokens == 12
plain = client.completions.create(model=name, prompt="It was", max_tokens=8, temperature=0)
assert plain.choices[0].text
first = plain.choices[0].text.split()[0]
stopped = client.completions.create(model=name, prompt="It was", max_tokens=8, temperature=0, stop=[first])
assert stopped.choices[0].finish_reason == "stop" and first not in stopped.choices[0].text
for wrong, kind in (({"model": "nobody", "messages": messages}, NotFoundError), ({"model": name, "messages": []}, BadRequestError)):
    try:
        client.chat.completions.create(**wrong)
        raise SystemExit("not refused: " + str(wrong))
    except kind as error:
        assert error.body["message"]
print("ok")
"""


@pytest.fixture(scope="module")
def python_with_openai():
    folder = ROOT / "build" / "venv-openai"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    done = subprocess.run([str(python), "-m", "pip", "install", "-q", "openai"], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        pytest.skip("the openai package could not be installed from PyPI: " + done.stderr[-200:])
    return python


def test_chat_stream_stop_and_errors(serve, python_with_openai):
    server = serve()
    done = subprocess.run([str(python_with_openai), "-c", CLIENT, server.url("")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.strip() == "ok", done.stderr
