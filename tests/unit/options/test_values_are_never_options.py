"""Values of other people's files stay values: none becomes an option, a line of its own, or an escape."""

import argparse
import json
import tomllib
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.commands import plan as plan_command
from gpu_plan.planner.errors import InputError, PlanError
from gpu_plan.planner.options.config import check_tables, job_options
from gpu_plan.planner.options.given.configured import configured
from gpu_plan.planner.options.given.named import Named, named, namespace, shown_words
from gpu_plan.planner.options.parser import given_job_words, job_option_names
from gpu_plan.planner.options.words import main_parser
from gpu_plan.planner.regression.jobs import read_jobs
from gpu_plan.planner.toml_text import toml_comment, toml_string, toml_value
from tests.support.sample import sample

EVIL = "--execute=evil.py"
HOSTILE = (
    EVIL, "--help", "--version", "-o", "--", "-", "--plan=x.json", "--trust-remote-code", "@generate", "-1x",
    "a\nb", "--seq-len\n2", "a\x1b[2Jb", "a\x00b", "\u2028", "x --execute evil.py", "--set", "a=b",
)  # fmt: skip
FEW = (EVIL, "--help", "--", "a\nb", "a\x1b[2Jb", "a\x00b")
"""Of those, one of each sort."""
UNSEEN = tuple(text for text in HOSTILE if any(mark in text for mark in "\n\x1b\x00\u2028"))
DASHED = tuple(text for text in HOSTILE if text.startswith("-"))
FILES = {
    "axolotl.yaml": ("axolotl", {
        "base_model": "gpt2", "sequence_len": 64, "micro_batch_size": 1, "optimizer": "adamw_torch", "adapter": "lora",
        "lora_r": 8, "lora_target_modules": ["c_attn"], "attn_implementation": "sdpa", "bf16": True, "deepspeed": None,
        "rl": None, "gradient_checkpointing": True,
    }),
    "llamafactory.yaml": ("llamafactory", {
        "model_name_or_path": "gpt2", "stage": "sft", "finetuning_type": "lora", "cutoff_len": 64,
        "lora_target": "c_attn", "lora_rank": 8, "flash_attn": "auto", "optim": "adamw_torch",
    }),
    "trainer.json": ("trainer", {
        "output_dir": "o", "per_device_train_batch_size": 1, "optim": "adamw_torch", "fsdp": "", "deepspeed": None,
        "model_name_or_path": "gpt2", "bf16": True,
    }),
    "accelerate.yaml": ("accelerate", {
        "distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 2, "model_name_or_path": "gpt2",
        "fsdp_config": {"fsdp_version": 2, "fsdp_state_dict_type": "x"},
    }),
    "deepspeed.json": ("deepspeed", {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": True},
        "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"},
    }),
}  # fmt: skip
"""A file of each kind that is read, with the keys that hold words."""
PLAIN = vars(main_parser().parse_args([]))


def planted(content: object, hostile: object):
    """`content` with each of its values in turn replaced."""
    assert isinstance(content, dict)
    for key, value in content.items():
        yield {**content, key: hostile}
        yield {**content, key: [hostile]}
        if isinstance(value, dict):
            yield from ({**content, key: inner} for inner in planted(value, hostile))
    yield {**content, str(hostile): hostile}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[argparse.Namespace]:
    """What the main job would have been asked for; it does not run."""
    found: list[argparse.Namespace] = []

    def note(args: argparse.Namespace, words: object, script_words: object) -> int:
        found.append(args)
        return 0

    monkeypatch.setattr(plan_command, "_run", note)
    return found


@pytest.mark.parametrize("name", FILES)
def test_no_value_of_a_configuration_is_an_option(
    name: str, tmp_path: Path, asked: list[argparse.Namespace], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('ran', 'w')\n")
    kind, content = FILES[name]
    count = 0
    for hostile in (*FEW, None, "", 0, -1, [], {}, 1e400):
        for spoilt in planted(content, hostile):
            # JSON is YAML as well: what is read is the same.
            (tmp_path / name).write_text(json.dumps(spoilt))
            code = main(["from-config", name, "gpt2", "--kind", kind, "--gpus", "2xT4", "--plan"])
            told = capsys.readouterr()
            assert code in (0, 2, 3), (spoilt, code)
            assert told.out == "", "neither help nor version"
            assert "\x1b" not in told.err or code != 0
            assert code == 0 or told.err.count("plan: error: ") == 1
            count += 1
    assert asked, "some of these files must be planned, or this test shows nothing"
    jobs = {*job_option_names(), "settings", "model", "gpus"}
    for args in asked:
        extra = {name: value for name, value in vars(args).items() if value != PLAIN[name]}
        assert {name.replace("_", "-") for name in extra} <= jobs
        assert (args.model, args.gpus, args.trust_remote_code) == ("gpt2", "2xT4", False)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["evil.py", name])
    assert count > 100


@pytest.mark.parametrize("key", ["base_model", "model_name_or_path"])
@pytest.mark.parametrize("hostile", [*DASHED, *UNSEEN])
def test_a_model_of_a_file_that_is_none(
    key: str, hostile: str, tmp_path: Path, asked: list[argparse.Namespace], capsys: pytest.CaptureFixture[str]
) -> None:
    kind = "axolotl" if key == "base_model" else "llamafactory"
    path = tmp_path / "a.yaml"
    path.write_text(json.dumps({key: hostile}))
    for more in (["--plan"], [], ["--json"], ["--toml"]):
        code = main(["from-config", str(path), "--kind", kind, "--gpus", "1xT4", *more])
        told = capsys.readouterr()
        assert (code, told.out) == (2, "")
        assert "model" in told.err
        assert "\x1b" not in told.err
    assert not asked


@pytest.mark.parametrize("hostile", sample(FEW, kept=[EVIL, "a\nb"]))
def test_no_value_of_a_check_is_an_option(
    hostile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('ran', 'w')\n")
    plain = {"model": "EleutherAI/pythia-70m", "gpus": "1xT4"}
    names = [name for name in job_option_names() if name not in ("hosts", "max-restarts", "lora-targets", "revision")]
    for key in ("model", "gpus", "args", "budget", "warn", "fail", "set", *names):
        table = {**plain, key: hostile}
        lines = [f"{name} = {toml_string(value)}" for name, value in table.items()]
        (tmp_path / "plan.toml").write_text("\n".join(["[checks.job]", *lines]) + "\n")
        code = main(["check"])
        told = capsys.readouterr()
        assert code == 3 if (key, code) == ("model", 3) else code == 2, (key, hostile, code, told)
        assert "\x1b" not in told.out + told.err
        assert "usage:" not in told.out
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_value_of_the_project_configuration_is_an_option(hostile: str, tmp_path: Path) -> None:
    refused = []
    for key in ("model", "gpus", *job_option_names()):
        (tmp_path / "plan.toml").write_text(f"{key} = {toml_string(hostile)}\n")
        found = job_options(tmp_path)
        assert found is not None
        try:
            args = namespace(configured(found))
        except InputError as problem:
            refused.append(str(problem))
            continue
        assert hostile not in UNSEEN
        changed = {name for name, value in vars(args).items() if value != PLAIN[name]}
        assert changed == {key.replace("-", "_")}
    assert all("plan.toml: " in line and "\x1b" not in line for line in refused)


def test_named_values_are_what_words_would_be() -> None:
    """For what can be written both ways, both give the same."""
    values = {"task": "infer", "precision": "bf16", "context": "64", "tp": "2", "pin": True, "trust-remote-code": True}
    train = {
        "seq-len": "2k", "lora-targets": "q,v", "fused-loss": False, "compile": True, "strategy": "fsdp",
        "set": {"fsdp.reshard_after_forward": "false"},
    }  # fmt: skip
    for given in (
        values,
        train,
        {"fused-loss": True, "compile": False},
        {"compile": True, "set": {"compile.backend": "eager"}},
    ):
        job = named({"model": "gpt2", "gpus": "8xH100", **given})
        parsed = main_parser().parse_args(shown_words(job))
        assert sorted(parsed.settings) == sorted(namespace(job).settings)
        same = {"settings": [], "compile": None}
        assert {**vars(parsed), **same} == {**vars(namespace(job)), **same}
    assert given_job_words(namespace(Named())) == ()


def test_what_no_option_is_or_takes() -> None:
    for values in (
        {"execute": "x.py"}, {"json": True}, {"pin": "true"}, {"seq-len": True}, {"task": "x"}, {"model": "-x"},
        {"seq-len": {}}, {"seq-len": []}, {"set": "a=b"}, {"set": {"a=b": "c"}}, {"set": {"a": {}}}, {"compile": 1},
        {"lora-targets": [["q"]]}, {"revision": "\ud800"},
    ):  # fmt: skip
        with pytest.raises(PlanError):
            named(values)


@pytest.mark.parametrize("hostile", [*HOSTILE, 'a"b', "a\\", "\x7f", "\ud800", "😀", "٣", "007"])
def test_what_is_written_as_toml_is_read_back(hostile: str) -> None:
    text = f"{toml_comment(hostile)}\n{toml_string(hostile)} = {toml_string(hostile)}\nvalue = {toml_value(hostile)}\n"
    read = tomllib.loads(text)
    wanted = hostile.replace("\ud800", "\ufffd")
    assert read == {wanted: wanted, "value": wanted}


def test_proposed_jobs_hold_no_table_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    injected = 'x\n[tool.plan]\nmodel = "--help"'
    content = {"base_model": injected, "sequence_len": 64, "micro_batch_size": 1, "adapter": injected}
    (tmp_path / "a.yaml").write_text(json.dumps(content))
    assert main(["check", "--init", "--write"]) == 0
    capsys.readouterr()
    tables = check_tables(tmp_path)
    assert tables is not None
    assert list(tables.tables) == ["a"]
    assert job_options(tmp_path).values == {}  # type: ignore[union-attr]
    with pytest.raises(InputError, match="cannot be shown"):
        read_jobs(tables)
