"""Commands on sound and damaged files: exit codes and what the message names."""
import json
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest
from conftest import BINARY, MINI, ROOT, run

SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


@pytest.fixture
def model(tmp_path):
    """A copy whose files are links until a test writes its own."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in MINI.iterdir():
        os.symlink(file, folder / file.name)
    return folder


def own(path):
    target = path.resolve()
    path.unlink()
    shutil.copy(target, path)
    path.chmod(0o644)
    return path


def edit_json(path, change):
    value = json.loads(own(path).read_text())
    change(value)
    path.write_text(json.dumps(value))


def edit_header(path, change):
    data = own(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def refused(model, *parts, command="generate"):
    more = ["--prompt", "x"] if command == "generate" else ["--port", "0"] if command == "serve" else []
    done = run(command, "--model-path", model, *more, timeout=60)
    text = done.stderr + (done.stdout if command == "check" else "")
    assert done.returncode == 2, (done.returncode, text)
    assert len(done.stderr.splitlines()) <= 25, text
    for part in parts:
        assert part in text, text
    for crash in ("terminate called", "Segmentation", "bad_alloc", "AddressSanitizer"):
        assert crash not in text
    return text


@pytest.mark.parametrize("command", ["generate", "check", "serve"])
def test_truncated_and_overlong_shards(model, command):
    path = own(model / SHARDS[1])
    size = path.stat().st_size
    os.truncate(path, size - 1000)
    refused(model, SHARDS[1], command=command)
    os.truncate(path, size + 8)
    refused(model, SHARDS[1], command=command)


def test_header_length_beyond_the_file(model):
    path = own(model / SHARDS[0])
    path.write_bytes(struct.pack("<Q", 2**62) + path.read_bytes()[8:])
    refused(model, SHARDS[0], "header")
    path.write_bytes(b"\x01")
    refused(model, SHARDS[0])


def test_offsets_that_overlap_or_leave_the_file(model):
    def overlap(header):
        header["model.norm.weight"]["data_offsets"] = header["lm_head.weight"]["data_offsets"]

    edit_header(model / SHARDS[1], overlap)
    refused(model, SHARDS[1], "model.norm.weight")


def test_wrong_type_and_shape_name_tensor_expected_and_found(model):
    def reshape(header):
        header["lm_head.weight"]["shape"] = [2048, 256]

    edit_header(model / SHARDS[1], reshape)
    refused(model, "lm_head.weight", "[4096, 128]", "[2048, 256]", "vocab_size")


def test_all_missing_tensors_in_one_message(model):
    def rename(header):
        for name in list(header):
            if ".experts.5." in name:
                header[name.replace(".experts.5.", ".experts.999.")] = header.pop(name)

    edit_header(model / SHARDS[1], rename)
    edit_json(model / "model.safetensors.index.json", lambda index: [index["weight_map"].__setitem__(n.replace(".experts.5.", ".experts.999."), f) and index["weight_map"].pop(n) for n, f in list(index["weight_map"].items()) if f == SHARDS[1] and ".experts.5." in n])
    refused(model, "missing", "experts")


def test_index_that_names_another_split(model):
    edit_json(model / "model.safetensors.index.json", lambda index: index["weight_map"].__setitem__("model.norm.weight", "model-00007-of-00030.safetensors"))
    refused(model, "model-00007-of-00030.safetensors", "index")


def test_git_lfs_pointers(model):
    for name in (SHARDS[0], "tiktoken.model"):
        own(model / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9500000\n")
        refused(model, name, "Git LFS pointer", "9500000")
        (model / name).unlink()
        os.symlink(MINI / name, model / name)


def test_duplicate_tensors_over_shards(model):
    def add(header):
        header["model.norm.weight"] = dict(dtype="BF16", shape=[0], data_offsets=[0, 0])

    edit_header(model / SHARDS[0], add)
    refused(model, "model.norm.weight")


@pytest.mark.parametrize("value", [None, -1, 0, 2**62, "128", 1.5, [128], True])
def test_bad_dimensions(model, value):
    edit_json(model / "config.json", lambda config: config.__setitem__("hidden_size", value))
    refused(model, "hidden_size")


def test_folders_and_files_that_are_not_there(model, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "config.json")
    refused(tmp_path / "nowhere", "nowhere")
    refused(model / "config.json", "not a folder")
    (model / "config.json").unlink()
    refused(model, "config.json")


@pytest.mark.parametrize("name", [SHARDS[0], "config.json", "tiktoken.model"])
def test_an_unreadable_file_is_named(name):
    # Root may read everything, so the program runs as nobody, from a folder that nobody may enter.
    folder = Path(tempfile.mkdtemp(prefix="gimbal-unreadable-"))
    try:
        folder.chmod(0o755)
        shutil.copytree(MINI, folder / "model")
        (folder / "model").chmod(0o755)
        for file in (folder / "model").iterdir():
            file.chmod(0o000 if file.name == name else 0o644)
        shutil.copy(BINARY, folder / "gimbal")
        prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        command = [*prefix, str(folder / "gimbal"), "generate", "--model-path", str(folder / "model"), "--prompt", "x"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
        assert done.returncode == 2, done.stderr
        assert name in done.stderr and "ermission denied" in done.stderr, done.stderr
    finally:
        shutil.rmtree(folder)


def test_unknown_architecture_lists_the_known(model):
    edit_json(model / "config.json", lambda config: config.__setitem__("model_type", "llama"))
    refused(model, "llama", "kimi_k2", "deepseek_v3")


def test_tokenizer_line_is_named(model):
    lines = own(model / "tiktoken.model").read_text().splitlines()
    lines[99] = "!!!! 99"
    (model / "tiktoken.model").write_text("\n".join(lines))
    refused(model, "tiktoken.model", "line 100")


def scores_of(model, tmp_path):
    lines = tmp_path / "probe.jsonl"
    lines.write_text(json.dumps({"id": "a", "ids": [(37 * k + 11) % 3800 for k in range(96)]}) + "\n")
    done = run("score", "--model-path", model, "--input", lines, "--output", tmp_path / "probe-out.jsonl")
    assert done.returncode == 0, done.stderr
    return (tmp_path / "probe-out.jsonl").read_text(), done.stderr


def test_rope_parameters_give_the_same_scores_as_rope_scaling(model, tmp_path):
    def respell(config):
        rope = config.pop("rope_scaling")
        rope["rope_type"] = rope.pop("type")
        rope["rope_theta"] = config.pop("rope_theta")
        config["rope_parameters"] = rope

    edit_json(model / "config.json", respell)
    assert scores_of(model, tmp_path)[0] == scores_of(MINI, tmp_path)[0]


def test_what_is_stored_decides_what_is_quantized(model, tmp_path):
    edit_json(model / "config.json", lambda config: config["quantization_config"].__setitem__("ignore", []))
    scores, notes = scores_of(model, tmp_path)
    assert scores == scores_of(MINI, tmp_path)[0]
    assert any("config" in line for line in notes.splitlines() if line.startswith("note: "))


def test_a_bit_width_that_the_tensors_contradict(model):
    edit_json(model / "config.json", lambda config: config["quantization_config"]["config_groups"]["group_0"]["weights"].__setitem__("num_bits", 8))
    refused(model, "weight_packed", "num_bits", "[32, 32]", "[32, 16]", "8063")


def test_special_ids_come_from_the_keys(model, tmp_path):
    def shuffle(config):
        added = config["added_tokens_decoder"]
        del added["3846"]
        config["added_tokens_decoder"] = dict(reversed(list(added.items())))

    lines = tmp_path / "chat.jsonl"
    lines.write_text('{"messages": [{"role": "user", "content": "Hi"}]}\n')
    edit_json(model / "tokenizer_config.json", shuffle)
    outputs = [run("render", "--model-path", folder, "--input", lines).stdout for folder in (model, MINI)]
    assert outputs[0] == outputs[1] and outputs[0].strip()


def test_check_reports_a_sound_model():
    done = run("check", "--model-path", MINI, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
    assert run("check", "--model-path", MINI).returncode == 0


@pytest.mark.parametrize("quantization", ["int4", "bf16", "fp8"])
def test_synth_is_seeded_and_usable(tmp_path, quantization):
    config = json.loads((MINI / "config.json").read_text())
    config.update(num_hidden_layers=3, n_routed_experts=16, n_group=4, topk_group=2, num_experts_per_tok=4, hidden_size=160)
    source = tmp_path / "config.json"
    source.write_text(json.dumps(config))
    outputs = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        done = run("synth", "--model-config", source, "--output", tmp_path / name, "--seed", seed, "--quantization", quantization, "--shard-bytes", "1000000", "--tokenizer-path", MINI)
        assert done.returncode == 0, done.stderr
        outputs.append({f.name: f.read_bytes() for f in sorted((tmp_path / name).iterdir())})
    assert outputs[0] == outputs[1]
    assert outputs[0].keys() == outputs[2].keys() and outputs[0] != outputs[2]
    assert sum(name.endswith(".safetensors") for name in outputs[0]) > 1
    assert run("check", "--model-path", tmp_path / "a").returncode == 0
    lines = tmp_path / "in.jsonl"
    lines.write_text(json.dumps({"id": "x", "ids": list(range(5, 90))}) + "\n")
    scores = []
    for flags in ([], ["--chunked-prefill-size", "7"], ["--load-format", "dummy", "--weight-seed", "1"]):
        done = run("score", "--model-path", tmp_path / "a", "--input", lines, "--output", tmp_path / "out.jsonl", *flags)
        assert done.returncode == 0, done.stderr
        scores.append((tmp_path / "out.jsonl").read_text())
    assert scores[0] == scores[1] == scores[2]
    done = run("score", "--model-path", tmp_path / "a", "--input", lines, "--output", tmp_path / "reference.jsonl", "--op-backend", "reference", "--attention-backend", "reference", "--moe-runner-backend", "reference")
    assert done.returncode == 0, done.stderr
    first, reference = (json.loads(text.splitlines()[0]) for text in (scores[0], (tmp_path / "reference.jsonl").read_text()))
    assert max(abs(a - b) for a, b in zip(first["nll"][1:], reference["nll"][1:])) < 1e-3
    assert run("synth", "--model-config", source, "--output", tmp_path / "a").returncode == 2  # not empty


def test_render_prints_text_and_ids(tmp_path):
    lines = tmp_path / "chat.jsonl"
    lines.write_text('{"messages": [{"role": "user", "content": "Hi"}]}\n')
    done = run("render", "--model-path", MINI, "--chat-template", "kimi-k2.5", "--input", lines)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rendered"] == "<|im_user|>user<|im_middle|>Hi<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
    lines.write_text('{"messages": []}\n')
    assert "line 1" in run("render", "--model-path", MINI, "--input", lines).stderr


def test_score_input_and_output_faults(tmp_path):
    lines = tmp_path / "in.jsonl"
    for text, part in [("", "no lines"), ("{}\n", "exactly one"), ('{"ids": [5000]}\n', "5000"), ('{"ids": []}\n', "nothing to score"), (json.dumps({"ids": [1] * 4097}), "4096")]:
        lines.write_text(text)
        done = run("score", "--model-path", MINI, "--input", lines, "--output", tmp_path / "o")
        assert done.returncode == 2 and part in done.stderr, done.stderr
        assert not (tmp_path / "o").exists()
    lines.write_text('{"ids": [1, 2]}\n')
    assert run("score", "--model-path", MINI, "--input", lines, "--output", "/nonexistent/o").returncode == 2
    assert ROOT
