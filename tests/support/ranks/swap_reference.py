"""Real ZeRO-3 with swap files, and what the planner says of the same job: reads, buffers, files (I/O)."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gpu_plan.planner.strategy.base import RankContext, nbytes
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.strategy.zero.common import MASTER, optimizer_groups, pinned_bytes
from gpu_plan.planner.strategy.zero.stage3.nvme import flat_buffers
from gpu_plan.planner.strategy.zero.stage3.rank import Stage3
from gpu_plan.planner.strategy.zero.stage3.swap import SwapError
from gpu_plan.planner.workload.training import Precision
from tests.support.distributed_reference import SECONDS_PER_CASE, launch_ranks
from tests.support.ranks.case import RankCase
from tests.support.ranks.replay import context_of

ROOT = Path(__file__).parents[3]
HELD = (
    "weight buffers", "reused", "state buffers", "gradients", "weights in RAM", "small weights", "small groups",
)  # fmt: skip
"""Bytes of the host that `swap_loop` adds up."""
GOLDEN = ROOT / "tests" / "golden" / "deepspeed_swaps.json"
WORLD_SIZE = 2
WIDE = {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8}
"""Some partitions of two ranks are above a MiB, from which on DeepSpeed swaps, and some below."""
PARTED = {
    "zero.reduce_bucket_size": "3000000",
    "zero.param_persistence_threshold": "0",
    "zero.max_in_cpu": "0",
    "zero.param_buffer_size": "3000000",
}
BRIEF = {**PARTED, "zero.max_reuse_distance": "0"}
_LLAMA = {**WIDE, "vocab_size": 4096, "num_hidden_layers": 3, "num_key_value_heads": 4}


def _case(architecture: str = "llama-3", changes: dict[str, Any] = _LLAMA, **more: Any) -> RankCase:
    return RankCase(architecture=architecture, strategy="zero3", changes=changes, **more)


CASES = (
    _case(settings=PARTED),
    _case(settings={**PARTED, "zero.param_buffer_count": "40"}),
    _case(settings={**PARTED, "zero.param_buffer_count": "20", "zero.prefetch_bucket_size": "0"}),
    _case(settings=BRIEF),
    _case(settings=BRIEF, accumulation=2),
    _case(
        settings={**BRIEF, "zero.sub_group_size": "1500000", "zero.prefetch_bucket_size": "0"},
        changes={**_LLAMA, "vocab_size": 4099},
        precision=Precision("bf16-mixed"),
    ),
    _case(settings={**BRIEF, "zero.sub_group_size": "2000000", "zero.max_in_cpu": "3000000"}),
    _case(settings={"zero.reduce_bucket_size": "3000000", "zero.offload_param": "none"}),
    _case(
        "qwen2",
        settings={"zero.reduce_bucket_size": "3000000", "zero.offload_param": "cpu"},
        precision=Precision("bf16-mixed"),
    ),
    _case(
        "gpt2",
        changes={"n_embd": 512, "n_head": 8, "vocab_size": 4099},
        settings={**BRIEF, "zero.prefetch_bucket_size": "0", "zero.param_buffer_count": "12"},
    ),
    _case("mixtral", settings={**BRIEF, "zero.prefetch_bucket_size": "0", "zero.param_buffer_count": "12"}),
)
"""What is run for real: runs that live, and that DeepSpeed's own assertions end."""
SECONDS = 900
"""Of which most is compiling async_io, where it is not kept from before."""


def run_swapping(cases: Sequence[RankCase], world_size: int) -> list[list[dict[str, Any]]]:
    """By case and rank, what `swap_loop.swapped_run` noted; RuntimeError where a process ends before its list."""
    with tempfile.TemporaryDirectory(prefix="plan-swap-") as name:
        folder = Path(name)
        (folder / "cases.json").write_text(json.dumps([case.to_dict() for case in cases]))
        seconds = SECONDS + SECONDS_PER_CASE * len(cases)
        launch_ranks("tests.support.ranks.swap_worker", folder, world_size, seconds)
        return [
            [json.loads((folder / f"case-{number}-rank-{rank}.json").read_text()) for rank in range(world_size)]
            for number in range(len(cases))
        ]


def swapping_context(case: RankCase, world_size: int) -> RankContext:
    """The context of a case that swaps, with nothing pinned."""
    settings = {"zero.pin_memory": "false", **case.settings}
    return replace(context_of(case, world_size), offload=Offload.NVME, settings=tuple(settings.items()))


def planned(case: RankCase, world_size: int) -> dict[str, Any]:
    """The same figures of one rank's plan; `died` where it says that the run ends."""
    context = swapping_context(case, world_size)
    stage = Stage3(context, buffers=int(case.settings.get("zero.param_buffer_count", "5")))
    assert stage.nvme is not None
    names = [parameter.name for parameter in context.trace.parameters]
    calls = stage.pool.calls if stage.pool is not None else []
    died = ""
    try:
        plan = stage.plan()
    except SwapError as error:
        died = "twice" if error.needed is None else "buffers"
    reads = [[sorted(names[index] for index in call), later] for call, later in calls]
    found: dict[str, Any] = {"reads": reads, "died": died}
    if died:
        return found
    rests = sum(
        nbytes(share, MASTER)
        for share, file in zip(stage.parts.share, stage.nvme.gradients, strict=True)
        if file is not None and file.stays
    )
    groups = optimizer_groups(context) if stage.weights_on_host else []
    flat = [nbytes(elements, stage.dtype) for elements in flat_buffers(context, stage.parts)[0] if groups]
    # The weights' own buffer is pinned whatever is said, in a block of a power of two; a CPU pins nothing.
    exact = plan.host_bytes - stage.nvme.reserve_bytes - sum(pinned_bytes(size, True) - size for size in flat)
    found |= {"disk": plan.nvme_bytes, "host": exact}
    return found if case.precision == Precision("fp32") else found | {"rests": rests}


def measured(seen: dict[str, Any], case: RankCase) -> dict[str, Any]:
    """What one rank noted, as `planned` says it."""
    reads = [read for read in seen["reads"] if read[0] != ["step"]]
    found = {"reads": reads, "died": died_of(seen["died"])}
    if seen["died"]:
        return found
    host = sum(seen[key] for key in HELD)
    found |= {"disk": seen["disk"], "host": host}
    # In fp32 a CPU's gradient partition is a view of all partitions: nothing is copied to it from the host.
    return found if case.precision == Precision("fp32") else found | {"rests": seen["rests"][-1]}


def died_of(words: str) -> str:
    """DeepSpeed's assertion in the planner's words."""
    if words.startswith("Not enough buffers"):
        return "buffers"
    return "twice" if "already assigned swap buffer" in words else words


def record() -> None:
    """Runs every case for real and writes GOLDEN: `python -m tests.support.ranks.swap_reference`."""
    found = {}
    for case in CASES:
        runs = run_swapping([case], WORLD_SIZE)[0]
        if any("error" in run for run in runs):
            raise RuntimeError("\n".join(run.get("error", "") for run in runs))
        found[case.label()] = [measured(run, case) for run in runs]
    versions = {name: version(name) for name in ("deepspeed", "torch", "transformers")}
    GOLDEN.write_text(json.dumps({"made with": versions, "ranks": found}, indent=1) + "\n")


if __name__ == "__main__":
    record()
