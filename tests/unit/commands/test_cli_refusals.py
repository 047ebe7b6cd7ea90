"""Words that make no sense: one line on stderr, the right exit code, nothing on stdout, nothing written."""

import json
import os
import stat
from pathlib import Path

import pytest

from docs.site.pages import not_built_page
from gpu_plan.cli import main, split_at_dashes
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model import catalog_index
from gpu_plan.planner.options import parser as options
from gpu_plan.planner.options.training import reading as workload_options
from gpu_plan.planner.options.words import join_negative
from gpu_plan.planner.strategy.known import NOT_BUILT
from tests.support.calls import calls_of

MODEL = "EleutherAI/pythia-70m"


@pytest.fixture
def refused(capsys, tmp_path, monkeypatch):
    """Runs words that must be refused in an empty folder; gives the one line."""
    monkeypatch.chdir(tmp_path)
    cache = tmp_path.parent / f"{tmp_path.name}-cache"
    monkeypatch.setenv("GPU_PLAN_CACHE", str(cache))

    def run(*words, code=2, calls=1_000_000):
        before = sorted(os.listdir(tmp_path))
        codes = []
        assert calls_of(lambda: codes.append(main(list(words)))) < calls, "much work for a refusal"
        assert codes == [code]
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("plan: error: ")
        assert err.count("\n") == 1, err
        assert err.endswith("\n")
        assert "Traceback" not in err
        assert sorted(os.listdir(tmp_path)) == before
        assert not cache.exists()
        return err.removeprefix("plan: error: ").rstrip("\n")

    return run


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("0xH100", "zero"),
        ("-1x", "negative"),
        ("-1xH100", "negative"),
        ("8x", "no GPU"),
        ("", "not a cluster"),
        ("8xH1000", "Did you mean H100"),
        ("8xRTX9999", "unknown"),
        ("8x8x8xH100", "8xH100"),
        ("99999999999999999999xH100", "99999999999999999999"),
        ("\u0668xH100", "H100"),
        ("x" * 5000, ""),
    ],
)
def test_impossible_clusters(refused, spec, said):
    assert said in refused(MODEL, "--gpus", spec)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((MODEL, "--budget", "5"), "--tokens"),
        ((MODEL, "--tokens", "many"), "is not a number of tokens"),
        ((MODEL, "--gpus", "1xT4", "--host-ram", "lots"), "is not a size of RAM"),
        ((MODEL, "--gpus", "1xT4", "--host-nvme", "lots"), "is not a size of a disk: write it like 1TB"),
        ((MODEL, "--gpus", "1xT4", "--prefer", "fast"), "--prefer"),
        ((MODEL, "--gpus", "1xT4", "--price", "-1"), "--price"),
        ((MODEL, "--gpus", "1xT4", "--max", "banana"), "have a bound"),
        ((MODEL, "--gpus", "1xT4", "--machines", "1xT4"), "leave one of them out"),
        ((MODEL, "--gpus", "8"), "8 of which GPU"),
        ((MODEL, "--gpus", "H100x8"), "8xH100"),
        ((MODEL, "--gpus", "24GB"), "RTX-3090"),
        ((MODEL, "--gpus", "4090"), "did you mean 1xRTX-4090?"),
        ((MODEL, "--gpus", "0"), "asks for no GPU"),
        ((MODEL, "--gpus", "8*H100"), "did you mean 8xH100?"),
        ((MODEL, "--gpus", "8 H100"), "did you mean 8xH100?"),
        ((MODEL, "--gpus", "8xH100s"), "did you mean 8xH100?"),
        ((MODEL, "--gpus", "all"), "auto"),
        ((MODEL, "--gpus", "M3 Max"), "Apple"),
        ((MODEL, "--gpus", "p5"), "p5.48xlarge"),
        ((MODEL, "--gpus", "1xT4", "--budget", "5"), "--tokens"),
        ((MODEL, "--gpus", "1xT4", "--host-ram", "32"), "32GiB"),
        ((MODEL, "--gpus", "1xT4", "--precision", "float16"), "Did you mean fp16-mixed?"),
        ((MODEL, "--gpus", "1xT4", "--strategy", "deepspeed"), "Did you mean zero1 or zero2 or zero3?"),
        ((MODEL, "--gpus", "1xT4", "--offload", "cpu"), "Did you mean optimizer or all?"),
        ((MODEL, "--gpus", "1xT4", "--checkpointing", "true"), "Did you mean full?"),
        ((MODEL, "--gpus", "1xT4", "--micro-batch", "auto"), "leave it out"),
        ((MODEL, "--gpus", "1xT4", "--lr", "1"), "neither memory nor time"),
        (("train", MODEL, "--gpus", "1xT4"), "plan train.py"),
        (("train",), "plan train.py"),
        (("infer", MODEL, "--gpus", "1xT4"), "--task infer"),
        ((MODEL, "--gpus", "1xT4", "--batch-size", "4"), "--micro-batch"),
        ((MODEL, "--gpus", "1xT4", "--lora"), "--peft lora"),
        ((MODEL, "--gpus", "1xT4", "--offload"), "--offload needs a value: none, optimizer (ZeRO), all"),
        ((MODEL, "--gpus", "1xT4", "--task"), "--task needs a value: train, infer"),
        ((MODEL, "--gpus"), "--gpus"),
        (("--gpus", "8xH100"), "which model"),
        (("", "--gpus", "8xH100"), "MODEL"),
        ((MODEL, "--gpus", "1xT4", "more"), "more"),
        ((MODEL, "--gpus", "1xT4", "--precison", "bf16"), "Did you mean --precision?"),
        ((MODEL, "--gpu", "1xT4"), "Did you mean --gpus?"),
        ((MODEL, "--gpus", "1xT4", "--json", "--format", "md"), "contradict"),
        ((MODEL, "--gpus", "1xT4", "--format", "pdf"), "pdf"),
        ((MODEL, "--gpus", "1xT4", "--", "--lr", "1"), "--execute"),
        (("gpus", "--", "x"), "after --"),
        (("gpus", "--bogus"), "--bogus"),
        (("models", "--bogus"), "--bogus"),
        (("modls",), "plan models"),
        (("gpuss",), "plan gpus"),
        (("explor",), "plan explore"),
        (("from-confg",), "plan from-config"),
    ],
)
def test_words_that_do_not_parse(refused, words, said):
    assert said in refused(*words)


@pytest.mark.parametrize("option", options._LATER, ids=lambda option: option.name)
def test_options_of_later_versions_are_refused_by_name(refused, option):
    words = (option.name, "7") if option.takes_value else (option.name,)
    why = f": {option.why}" if option.why else " is not built yet"
    assert f"{' '.join(words)}{why}" in refused(MODEL, "--gpus", "1xT4", *words)


LATER_VALUES = [(option, value) for option, values in workload_options._LATER.items() for value in values]


@pytest.mark.parametrize(
    ("option", "value"),
    [*LATER_VALUES, *(("--strategy", name) for name in NOT_BUILT)],
)
def test_values_of_later_versions_are_refused_by_name(refused, option, value):
    assert f"{option} {value} is not built yet" in refused(MODEL, "--gpus", "8xT4", option, value)


def test_a_page_lists_what_is_refused():
    page = not_built_page()
    assert all(f"`{option} {value}`" in page for option, value in LATER_VALUES)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--strategy", "fsdq"), "Did you mean fsdp"),
        (("--precision", "bf61"), "bf16"),
        (("--optimizer", "adam"), "Did you mean adamw"),
        (("--attention", "flesh"), "Did you mean flash"),
        (("--stack", "trianer"), "Did you mean trainer"),
        (("--checkpointing", "ful"), "Did you mean full"),
        (("--offload", "optimiser"), "Did you mean optimizer"),
        (("--micro-batch", "0"), "--micro-batch '0'"),
        (("--micro-batch", "-1"), "--micro-batch '-1'"),
        (("--micro-batch", "1.5"), "--micro-batch '1.5'"),
        (("--micro-batch", "9" * 400), "--micro-batch"),
        (("--global-batch", "many"), "--global-batch 'many'"),
        (("--grad-accum", "0"), "--grad-accum '0'"),
        (("--seq-len", "1e3"), "--seq-len '1e3'"),
        (("--seq-len", "\u0663"), "--seq-len"),
        (("--top", "0"), "--top '0'"),
        (("--set", "unknown=1"), "--set unknown: unknown setting"),
        (("--set", "fsdp.reshard_after_forwrd=true"), "Did you mean fsdp.reshard_after_forward"),
        (("--set", "fsdp.reshard_after_forward"), "KEY=VALUE"),
        (("--set", "fsdp.reshard_after_forward=perhaps"), "true or false"),
    ],
)
def test_values_that_make_no_sense(refused, words, said):
    assert said in refused(MODEL, "--gpus", "8xT4", *words)


def test_unknown_model_offers_the_nearest(refused):
    said = refused("meta-llama/Lama-3.1-8B", "--gpus", "8xH100", code=3)
    assert "Did you mean meta-llama/Llama-3.1-8B" in said


def test_no_network_is_said_with_the_address(refused, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    said = refused("some-org/some-model", "--gpus", "1xT4", code=3)
    assert "127.0.0.1:9" in said
    assert "cannot be reached" in said


def test_a_training_script_that_is_not_there(refused):
    assert "train.py does not exist: name a training script" in refused("train.py", "--gpus", "1xT4", code=3)


def test_a_folder_without_config(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no config.json" in refused("./empty", "--gpus", "1xT4")


def _config(**changes):
    path = Path(catalog_index.__file__).parent / "catalog" / "EleutherAI--pythia-70m.json"
    return json.dumps({**json.loads(path.read_text()), **changes})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "empty"),
        ('{"model_type": "gpt_ne', "not valid JSON"),
        ("[1, 2]", "not an object"),
        ("null", "not an object"),
        ("[" * 5_000_000 + "]" * 5_000_000, "bytes long"),
        ("[" * 400_000 + "]" * 400_000, ""),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, ""),
        (_config(hidden_size="big"), "hidden_size"),
        (_config(hidden_size=-512), "hidden_size"),
        (_config(hidden_size=10**15), "hidden_size"),
        (_config(num_hidden_layers=10**9), "num_hidden_layers"),
        (_config(num_attention_heads=0), "num_attention_heads"),
        (_config(vocab_size=1.5), "vocab_size"),
        (_config(vocab_size=float("nan")), "NaN"),
        (_config(architectures="GPTNeoXForCausalLM"), "architectures"),
        (_config(model_type="../../etc/passwd"), "--trust-remote-code"),
        (_config(model_type="nosuch", auto_map={"AutoModel": "x.Y"}), "--trust-remote-code"),
    ],
)
def test_configs_that_make_no_sense(refused, tmp_path, content, said):
    (tmp_path / "config.json").write_text(content)
    assert said in refused("./config.json", "--gpus", "1xT4")


def test_existing_output_is_kept(refused, tmp_path):
    for option in ("-o", "--save"):
        target = tmp_path / "kept.json"
        target.write_text("precious")
        assert "--force" in refused(MODEL, "--gpus", "1xT4", option, str(target))
        assert target.read_text() == "precious"


def test_output_into_no_folder_or_a_folder(refused, tmp_path):
    assert "does not exist" in refused(MODEL, "--gpus", "1xT4", "-o", str(tmp_path / "no" / "x.md"))
    assert "is a folder" in refused(MODEL, "--gpus", "1xT4", "--save", str(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_output_into_a_folder_that_may_not_be_written(refused, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    refused(MODEL, "--gpus", "1xT4", "-o", str(locked / "x.md"), code=3)


def test_every_offered_gpu_exists(refused):
    said = refused(MODEL, "--gpus", "1xA1000")
    offered = said.partition("Did you mean ")[2].partition("?")[0].replace(" or ", ", ").split(", ")
    assert offered
    assert all(parse_cluster(f"1x{name}").world_size == 1 for name in offered)


def test_negative_counts_stay_with_their_option():
    assert join_negative(["m", "--gpus", "-1x", "--pin"]) == ["m", "--gpus=-1x", "--pin"]
    assert join_negative(["--gpus", "--json"]) == ["--gpus", "--json"]


def test_words_split_at_the_first_dashes():
    assert split_at_dashes(["a", "--", "b", "--", "c"]) == (["a"], ["b", "--", "c"])
    assert split_at_dashes(["a"]) == (["a"], [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seq-len", "64", "--seq-len", "128"], "--seq-len is given twice: keep one"),
        (["--seq-len=64", "--seq-len=64"], "--seq-len is given twice: keep one"),
        (["--pin", "--pin"], "--pin is given twice: keep one"),
        (["-o", "a", "--output", "b"], "--output is given twice: keep one"),
        (["--gpus", "1xT4"], "--gpus is given twice: keep one"),
        (["--fused-loss", "--no-fused-loss"], "--fused-loss and --no-fused-loss contradict each other: keep one"),
        (["--no-compile", "--compile"], "--no-compile and --compile contradict each other: keep one"),
        (["--set", "zero.pin_memory=true", "--set", "zero.pin_memory=true"], "--set zero.pin_memory is given twice"),
        (["--no-compile", "--set", "compile.backend=eager"], "--no-compile and --set compile.backend contradict"),
        (["--set", "compile.backend=eager", "--no-compile"], "--no-compile and --set compile.backend contradict"),
    ],
)
def test_an_option_given_twice_is_an_error(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["EleutherAI/pythia-70m", "--gpus", "2xT4", *words]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.out == ""


def test_every_verb_refuses_an_option_given_twice(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["check", "--format", "text", "--format", "md"], ["from-config", "a", "--gpus", "a", "--gpus", "b"]):
        assert main(words) == 2
        assert "is given twice: keep one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--strategy", "ddp", "--set", "zero.overlap_comm=true"], "--set zero.overlap_comm is about --strategy zero1"),
        (["--pin", "--set", "zero.reduce_bucket_size=5"], "--set zero.reduce_bucket_size is about --strategy zero1"),
        (["--strategy", "zero2", "--set", "zero.sub_group_size=5"], "is about --strategy zero3, not zero2"),
        (["--strategy", "fsdp1", "--set", "fsdp.reshard_after_forward=false"], "is about --strategy fsdp, hsdp,"),
        (["--pin", "--strategy", "zero3", "--set", "zero.pin_memory=false"], "zero.pin_memory is about offloaded"),
        (
            ["--offload", "nvme", "--set", "zero.offload_param=cpu", "--set", "zero.max_in_cpu=1"],
            "--set zero.max_in_cpu is about weights in files",
        ),
        (["--script-seconds", "5"], "--script-seconds is about a training script"),
        (["--data", "standin"], "--data standin is about a training script"),
        (["--set", "cache.implementation=static"], "--set cache.implementation is about inference"),
        (["--set", "eval.batch=4", "--set", "eval.samples=8"], "--set eval.samples is about logits that are kept"),
        (["--set", "eval.batch=4", "--set", "eval.every=8"], "--set eval.every needs --set eval.samples"),
        (["--set", "eval.every=8"], "--set eval.every needs --set eval.batch"),
    ],
)  # fmt: skip
def test_a_setting_that_would_do_nothing_is_refused(words: list[str], message: str, capsys) -> None:
    assert main(["EleutherAI/pythia-70m", "--gpus", "2xT4", *words]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.out == ""


@pytest.mark.parametrize("model", ["./model", "train.py", "package.module:factory"])
def test_a_revision_of_what_is_not_on_the_hub_is_refused(model, refused, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "train.py").touch()
    said = refused(model, "--gpus", "1xT4", "--revision", "main")
    assert said == f"--revision is about a model on the hub: {model} is on this machine"
