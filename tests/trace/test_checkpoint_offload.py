"""`--set checkpoint.offload=true`: inputs of checkpointed layers wait in host memory, as Accelerate has them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import yaml

from gpu_plan.cli import main
from gpu_plan.planner.model.build.construct import build_model
from tests.accuracy.architectures import ARCHITECTURES

LAYERS, LENGTH = 3, 64
Plan = Callable[..., tuple[int, Any, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("models")
    (found / "config.json").write_text(json.dumps(ARCHITECTURES["llama-3"].config(num_hidden_layers=LAYERS)))
    return found


@pytest.fixture
def plan(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(folder / "cache"))

    def run(*words: str) -> tuple[int, Any, str]:
        code = main([str(folder), "--gpus", "8xH100", "--seq-len", str(LENGTH), *words, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return run


FULL = ("--strategy", "fsdp", "--pin", "--checkpointing", "full", "--micro-batch", "4")
ON_HOST = ("--set", "checkpoint.offload=true")


def test_what_waits_on_the_host_is_what_torch_packs(plan: Plan) -> None:
    """The wrappers that Accelerate puts around each layer, on a real model: as many bytes, once for each layer."""
    from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrappers

    packed: list[int] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor.numel() * 2)  # bf16 there
        return tensor

    def counting(pin_memory: bool = False) -> torch.autograd.graph.saved_tensors_hooks:
        return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

    with torch.device("cpu"):
        meta = build_model(ARCHITECTURES["llama-3"].config(num_hidden_layers=LAYERS), attention="sdpa")
        model = meta.to_empty(device="cpu")
    for index, layer in enumerate(model.model.layers):
        wrapped = wrappers.checkpoint_wrapper(layer, preserve_rng_state=False)
        model.model.layers[index] = wrappers.offload_wrapper(wrapped)
    ids = torch.ones(4, LENGTH, dtype=torch.int64)
    with mock.patch.object(wrappers, "save_on_cpu", counting):
        model.train()(input_ids=ids, labels=ids).loss.backward()
    found = plan(*FULL, *ON_HOST)[1]["plans"][0]
    assert len(packed) == LAYERS
    assert found["memory"]["host_bytes"] == sum(packed)


def test_the_device_holds_less_and_waits_for_the_copies(plan: Plan) -> None:
    beside, found = (plan(*FULL, *words)[1]["plans"][0] for words in ((), ON_HOST))
    assert found["memory"]["peak_allocated_bytes"] < beside["memory"]["peak_allocated_bytes"]
    copied = found["speed"]["parts"]["host_transfer"]
    assert copied > 0 == beside["speed"]["parts"]["host_transfer"]
    assert found["speed"]["parts"]["exposed_communication"] >= copied
    assert "--fsdp_activation_checkpointing_offload true" in found["command"]


def test_it_is_written_for_accelerate(plan: Plan, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, script, out = folder / "plan.json", folder / "train.py", folder / "out"
    script.write_text("from accelerate import Accelerator\naccelerator = Accelerator()\naccelerator.prepare(model)\n")
    assert plan(*FULL, *ON_HOST, "--save", str(saved), "--force")[0] == 0
    assert main(["export", str(saved), "--to", "accelerate", "--script", str(script), "-o", str(out)]) == 0
    capsys.readouterr()
    written = yaml.safe_load((out / "accelerate.yaml").read_text())["fsdp_config"]
    assert written["fsdp_activation_checkpointing"] is written["fsdp_activation_checkpointing_offload"] is True


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--strategy", "zero3", "--checkpointing", "full"), "is about --strategy fsdp and hsdp, not zero3"),
        (("--checkpointing", "none"), "needs --checkpointing full"),
        (("--checkpointing", "full", "--set", "checkpoint.every=2"), "needs --checkpointing full of every layer"),
        (("--stack", "trainer", "--checkpointing", "full"), "--stack trainer does not use"),
    ],
)
def test_where_it_says_nothing_it_is_refused(plan: Plan, words: tuple[str, ...], says: str) -> None:
    code, found, err = plan(*words, *ON_HOST)
    assert (code, found) == (2, None)
    assert says in err.splitlines()[-1]
