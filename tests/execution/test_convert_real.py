"""What is converted equals what was saved, in every tensor: checkpoints that two gloo ranks wrote, optimizers included.

DDP and FSDP2 are compared after a way there and back and, by name, with each other. A universal checkpoint is compared
with the partitions of the ranks, put together here as DeepSpeed cuts them: runtime/zero/stage_1_and_2.py flattens a
group and gives each rank an equal part, runtime/zero/stage3.py cuts each parameter into equal parts.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_plan.cli import main
from gpu_plan.executor.checkpoints.find import open_checkpoint
from gpu_plan.executor.checkpoints.manifest import DEEPSPEED_UNIVERSAL
from tests.execution.checkpoint_content import differing, tensors
from tests.execution.launches import ROOT, launch

KINDS = ("fp32", "exp_avg", "exp_avg_sq")
Whole = Mapping[str, Mapping[str, torch.Tensor]]
"""By parameter and kind."""


def saved(folder: Path, strategy: str) -> Path:
    """A checkpoint after two steps of the example on two ranks."""
    folder.mkdir(parents=True)
    words = ("--steps", "2", "--save_steps", "2", "--batch_size", "2", "--seq_length", "32")
    ended = launch(folder, str(ROOT / "examples" / "train.py"), *words, strategy=strategy)
    assert ended.code == 0, ended.output
    return folder / "checkpoints" / "step-2"


def converted(source: Path, to: str, ranks: int, target: Path) -> Path:
    before = sorted((path, path.stat().st_mtime_ns) for path in source.rglob("*"))
    assert main(["convert", str(source), "--to", to, "--ranks", str(ranks), "-o", str(target)]) == 0
    made = open_checkpoint(target).manifest
    assert (made.strategy, made.world_size, made.step, made.converted_from) == (to, ranks, 2, str(source))
    assert sorted((path, path.stat().st_mtime_ns) for path in source.rglob("*")) == before
    return target


@pytest.mark.slow
@pytest.mark.parametrize(("before", "between"), [("ddp", "fsdp"), ("fsdp", "ddp")])
def test_whole_and_sharded_are_the_same(before: str, between: str, tmp_path: Path) -> None:
    source = saved(tmp_path / "saving", before)
    there = converted(source, between, 4, tmp_path / "there")
    back = converted(there, before, 2, tmp_path / "back")
    assert [name for name in differing(source, back) if "random_states" not in name] == []
    whole, sharded = (tensors(source), tensors(there)) if before == "ddp" else (tensors(there), tensors(source))
    weights = {name.removeprefix("model.safetensors/") for name in whole if name.startswith("model.safetensors/")}
    assert len(weights) > 10
    for name in weights:
        assert torch.equal(whole[f"model.safetensors/{name}"], sharded[f"pytorch_model_fsdp_0/model/{name}"])
    order = list(open_checkpoint(source if before == "ddp" else there).manifest.parameter_names)
    moments = [name for name in sharded if name.startswith("optimizer_0/optimizer/state/") and "/exp_avg" in name]
    assert len(moments) == 2 * len(weights)
    by_value = {name: sharded[name] for name in moments}
    if order:
        for number, parameter in enumerate(order):
            for kind in ("exp_avg", "exp_avg_sq"):
                numbered = whole[f"optimizer.bin/state/{number}/{kind}"]
                assert torch.equal(numbered, by_value[f"optimizer_0/optimizer/state/{parameter}/{kind}"])


@pytest.mark.slow
@pytest.mark.parametrize(("before", "to"), [("zero2", "zero1"), ("zero2", "zero3"), ("zero3", "zero3")])
def test_a_universal_one_holds_what_the_ranks_had(before: str, to: str, tmp_path: Path) -> None:
    source = saved(tmp_path / "saving", before)
    target = converted(source, to, 4, tmp_path / "universal")
    assert open_checkpoint(target).manifest.layout == DEEPSPEED_UNIVERSAL
    expected = of_stage_3(source) if before == "zero3" else of_stage_2(source)
    assert len(expected) > 10
    made = of_universal(target)
    assert made.keys() == expected.keys()
    for name, kinds in expected.items():
        for kind in KINDS:
            assert torch.equal(made[name][kind].flatten(), kinds[kind]), (name, kind)
            assert kinds[kind].abs().sum() > 0, (name, kind)


def of_universal(folder: Path) -> Whole:
    zero = next(path for path in folder.glob("*/zero"))
    found: dict[str, dict[str, torch.Tensor]] = {}
    for path in zero.glob("*/fp32.pt"):
        each = {kind: torch.load(path.with_name(f"{kind}.pt"), weights_only=False) for kind in KINDS}
        found[path.parent.name] = {
            kind: value["param"] if isinstance(value, dict) else value for kind, value in each.items()
        }
    return found


def _shapes(source: Path) -> dict[str, int]:
    """Elements by name, in the order in which they were flattened."""
    state = torch.load(next(iter(sorted(source.glob("*/*model_states.pt")))), weights_only=False)
    return {name: shape.numel() for group in state["param_shapes"] for name, shape in group.items()}


def _ranks(source: Path) -> list[dict[str, Any]]:
    files = sorted(source.glob("*/*zero_pp_rank_*_optim_states.pt"))
    assert len(files) == 2
    return [torch.load(path, weights_only=False)["optimizer_state_dict"] for path in files]


def _flat(state: Mapping[str, Any], kind: str, weights: str, inner: str) -> torch.Tensor:
    if kind == "fp32":
        return state[weights][0]
    base = state[inner] if "state" in state[inner] else state[inner]["optimizer_state_dict"]
    return base["state"][0][kind]


def of_stage_2(source: Path) -> Whole:
    ranks, found = _ranks(source), {name: dict[str, torch.Tensor]() for name in _shapes(source)}
    for kind in KINDS:
        parts = [_flat(state, kind, "single_partition_of_fp32_groups", "base_optimizer_state") for state in ranks]
        whole, at = torch.cat(parts), 0
        for name, elements in _shapes(source).items():
            found[name][kind], at = whole[at : at + elements], at + elements
    return found


def of_stage_3(source: Path) -> Whole:
    ranks, found = _ranks(source), {name: dict[str, torch.Tensor]() for name in _shapes(source)}
    for kind in KINDS:
        parts = [_flat(state, kind, "fp32_flat_groups", "optimizer_state_dict") for state in ranks]
        at = 0
        for name, elements in _shapes(source).items():
            share = -(-elements // len(ranks))
            found[name][kind] = torch.cat([part[at : at + share] for part in parts])[:elements]
            at += share
    return found
