"""`plan from-config FILE.py --config NAME`: torchtitan's Python configurations, read as text."""

import json
from pathlib import Path

import pytest

from gpu_plan.cli import main

REGISTRY = """
import os
os.mkdir("RAN")  # nothing of this file runs

def _spec():
    return model_registry("8B")

def llama3_8b() -> Trainer.Config:
    '''A docstring.'''
    model_spec = _spec()
    return Trainer.Config(
        hf_assets_path="./assets/hf/Llama-3.1-8B",
        model_spec=model_spec,
        optimizer=default_adamw(lr=3e-4),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=2 * 8192, max_context_length=8192, steps=1000),
        activation_checkpoint=FullAC.Config(),
    )

def llama3_8b_float8() -> Trainer.Config:
    config = llama3_8b()
    assert config.model_spec is not None
    config.model_spec = model_registry("8B", converters=[Float8LinearConverter.Config(model_compile_enabled=False)])
    config.training.max_context_length = 4096
    config.activation_checkpoint = None
    config.parallelism.data_parallel_replicate_degree = 2
    return config

def by_mode():
    config = llama3_8b()
    config.activation_checkpoint = ActivationCheckpointConfig(mode="selective")
    return config

def spread():
    config = llama3_8b()
    config.parallelism.pipeline_parallel_degree = 8
    return config

def by_environment():
    config = llama3_8b()
    config.training.max_context_length = int(os.environ["LENGTH"])
    return config

def in_a_loop():
    config = llama3_8b()
    for key in ("a", "b"):
        setattr(config, key, 1)
    return config

def endless():
    return endless()

def reinforcement():
    return Controller.Config(trainer=llama3_8b())
"""
EIGHT = "--strategy fsdp --offload none --precision bf16-mixed --optimizer adamw-fused --micro-batch 2"
READ = {
    "llama3_8b": (
        f"plan meta-llama/Llama-3.1-8B --gpus 8xH100 {EIGHT} --grad-accum 1 --seq-len 8192 --checkpointing full"
        " --stack torchtitan --set clip.max_norm=1.0"
    ),
    "by_mode": (
        f"plan meta-llama/Llama-3.1-8B --gpus 8xH100 {EIGHT} --grad-accum 1 --seq-len 8192 --checkpointing selective"
        " --stack torchtitan --set clip.max_norm=1.0"
    ),
    "llama3_8b_float8": (
        "plan meta-llama/Llama-3.1-8B --gpus 8xH100 --strategy hsdp --dp-replicate 2 --offload none"
        " --precision fp8-mixed --optimizer adamw-fused --micro-batch 4 --grad-accum 1 --seq-len 4096"
        " --checkpointing none --stack torchtitan --set clip.max_norm=1.0 --set fp8.all_gather=false"
    ),
}
REFUSED = {
    "spread": "parallelism.pipeline_parallel_degree 8 is not planned as torchtitan does it",
    "by_environment": "training.max_context_length is computed in line",
    "in_a_loop": "of in_a_loop is computed: nothing here runs to know it",
    "endless": "calls itself",
    "reinforcement": "returns Controller, and no Trainer.Config",
    "none_such": "is not in",
    None: "which configuration?",
}


def ran(
    text: str, name: str | None, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str, str]:
    monkeypatch.chdir(folder)
    (folder / "config_registry.py").write_text(text)
    more = [] if name is None else ["--config", name]
    code = main(["from-config", "config_registry.py", "--json", "--gpus", "8xH100", *more])
    out, err = capsys.readouterr()
    assert sorted(path.name for path in folder.iterdir()) == ["config_registry.py"], "nothing ran"
    assert "Traceback" not in err
    return code, out, err


@pytest.mark.parametrize("name", READ)
def test_a_configuration_is_read(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = ran(REGISTRY, name, tmp_path, capsys, monkeypatch)
    assert code == 0, err
    assert json.loads(out)["command"] == READ[name]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_computed_or_of_another_kind_is_one_line(
    name: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = ran(REGISTRY, name, tmp_path, capsys, monkeypatch)
    assert (code, out) == (2, "")
    assert REFUSED[name] in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "def f(:",
        "x = 1",
        "\0",
        "def f():\n    return " + "-" * 3000 + "1",
        "def f():\n    return " + "+".join("1" * 2000),
        "def f():\n    return " + "(" * 150 + ")" * 150,
        "def f():\n    return Trainer.Config(model_spec=" + "g(" * 80 + ")" * 80 + ")",
    ],
)
def test_files_that_are_no_registry(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = ran(text, "f", tmp_path, capsys, monkeypatch)
    assert (code, out) == (2, ""), err
    assert err.count("\n") == 1


WHOLE = """
def debug() -> Trainer.Config:
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=f())),
        hf_assets_path="./assets/hf/Llama-3.1-8B",
        model_spec=model_registry("8B", converters=[Float8LinearConverter.Config(model_compile_enabled=True)]),
        optimizer=OptimizersContainer.Config(param_groups=[
            ParamGroupConfig(pattern="a", optimizer_name="Adam"), ParamGroupConfig(pattern="b", optimizer_name="AdamW"),
        ], implementation="foreach"),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=2 * 8192, max_context_length=8192),
        validator=Validator.Config(enable=True, freq=5, dataloader=GrainDataLoader.Config(dataset=packed)),
        debug=DebugConfig(detect_anomaly=True, seed=1),
        override=OverrideConfig(imports=["x"]),
        checkpoint=CheckpointManager.Config(interval=10),
    )
"""


def test_every_part_of_a_registry_is_read_or_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config_registry.py"
    path.write_text(WHOLE)
    assert main(["from-config", str(path), "--config", "debug", "--gpus", "8xH100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["options"]["optimizer"] == "adamw"
    assert found["settings"]["eval.batch"] == "2"
    lines = " ".join(found["approximated"])
    for word in ("ChunkedLossWrapper", "recipe_name: rowwise", "detect_anomaly", "CUDA graphs"):
        assert word in lines
    assert found["not_understood"] == ["override"]
    assert {"validator.freq", "validator.dataloader", "debug.seed", "checkpoint.interval"} <= set(found["passed_over"])


def test_groups_of_another_optimizer_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config_registry.py"
    path.write_text(WHOLE.replace('optimizer_name="AdamW"', 'optimizer_name="DistMuon"'))
    assert main(["from-config", str(path), "--config", "debug", "--gpus", "8xH100"]) != 0
    assert "the optimizer of param_groups is DistMuon" in capsys.readouterr().err
