"""One cell of the matrix: a real job under a planned strategy, launched by `plan --execute`, read from its records."""

import contextlib
import io
import itertools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_plan.cli import main
from gpu_plan.executor.read_run import read_whole
from gpu_plan.executor.records.whole import WholeRun
from gpu_plan.executor.run_folder import list_runs
from gpu_plan.reports.run.compare import RunComparison, compare_run

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "execution" / "scripts"
MODEL = ROOT / "examples" / "tiny-llama"
PLAN = Path(sys.executable).parent / "plan"
LENGTH, GLOBAL_BATCH, WHOLE_STEPS = 32, 8, 4
STEPS = WHOLE_STEPS + 1
"""The last step of an epoch has an odd number of micro batches: one, where the others have two."""
SECONDS = 1500

TOLERANCE = 2e-6
"""Relative, on losses of about 6 in fp32, whose precision is 6e-8. Ranks and micro batches add up in another order what
one process adds at once: a loss, and each gradient, then differ in their last bits, and AdamW's division by the root of
the second moment carries that over to the weights (benchmarks/results/matrix.md says by how much losses differed)."""

LOOPS = {"accelerate": "accelerate_loop.py", "trainer": "trainer_loop.py", "plain": "plain_loop.py"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """What a training does beside its steps."""

    clip: float = 0.0
    """Norm; 0: not at all."""
    decay: float = 5.0
    dropout: float = 0.1
    """Masks made from the sample (tests/execution/scripts/tiny.py: drop_by_sample)."""
    random_dropout: float = 0.0
    """torch's own, from the process's random stream: comparable in one process only."""
    schedule: bool = True


VARIATIONS: Mapping[str, Variation] = {
    "clipped": Variation(clip=0.5),
    "not clipped": Variation(),
    "bare": Variation(decay=0.0, dropout=0.0, schedule=False),
    "random": Variation(clip=0.5, random_dropout=0.1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Loop × strategy × variation, on so many ranks; the global batch is always the same."""

    loop: str
    strategy: str
    ranks: int = 2
    accumulation: int = 2
    variation: str = "clipped"
    tensor_parallel: int = 1
    expert_parallel: int = 1
    """Of a model with experts."""

    @property
    def groups(self) -> int:
        """Ranks, or groups of ranks that compute one copy together, that see samples of their own."""
        return self.ranks // self.tensor_parallel

    @property
    def what(self) -> Variation:
        return VARIATIONS[self.variation]

    @property
    def samples(self) -> int:
        """Of the one epoch: whole steps, and one micro batch more."""
        return self.groups * self.micro_batch * (WHOLE_STEPS * self.accumulation + 1)

    @property
    def micro_batch(self) -> int:
        return GLOBAL_BATCH // self.groups // self.accumulation

    def label(self) -> str:
        batch = f"{self.micro_batch}x{self.accumulation}"
        return f"{self.loop}, {self.strategy}, {self.ranks} ranks, {batch}, {self.variation}"


def single(loop: str, variation: str = "clipped") -> Cell:
    """The whole global batch in one process."""
    return Cell(loop=loop, strategy="single", ranks=1, accumulation=1, variation=variation)


def sample() -> tuple[Cell, ...]:
    """What every test run launches."""
    return (Cell(loop="accelerate", strategy="zero2", variation="not clipped"),)


def cells() -> tuple[Cell, ...]:
    """All that a CPU can run. A plain loop wraps its model itself, and DeepSpeed's engine is no plain loop."""
    found = [single(loop) for loop in LOOPS] + [single("accelerate", "random"), single("plain", "random")]
    for variation, loop in itertools.product(("clipped", "not clipped"), LOOPS):
        strategies = ("ddp", "fsdp") if loop == "plain" else ("ddp", "fsdp", "fsdp1", "zero1", "zero2", "zero3")
        found += [Cell(loop=loop, strategy=strategy, variation=variation) for strategy in strategies]
    found += [Cell(loop="accelerate", strategy=strategy, variation="bare") for strategy in ("ddp", "zero1", "zero3")]
    found += [Cell(loop="accelerate", strategy="ddp", accumulation=1)]
    found += [Cell(loop="accelerate", strategy=strategy, ranks=4, accumulation=1) for strategy in ("fsdp", "hsdp")]
    for loop in LOOPS:
        found += [Cell(loop=loop, strategy="tp", tensor_parallel=2)]
        found += [Cell(loop=loop, strategy="fsdp_tp", ranks=4, tensor_parallel=2)]
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a launch left behind."""

    cell: Cell
    code: int
    output: str = field(repr=False)
    run: WholeRun = field(repr=False)
    comparison: RunComparison = field(repr=False)
    """What `plan report` shows."""

    @property
    def losses(self) -> list[float]:
        """Of each step, over all ranks."""
        steps = [[step.loss for step in rank.steps] for rank in self.run.ranks]
        return [sum(values) / len(values) for values in zip(*steps, strict=True)]  # type: ignore[arg-type]


EXPERTS = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 8, "num_experts_per_tok": 2,
    "max_position_embeddings": 512,
}  # fmt: skip
"""A tiny Qwen3-MoE."""


def make_weights(folder: Path) -> Path:
    """A folder with the tiny Llama's configuration and random weights: the model of every cell."""
    from transformers import AutoConfig

    return _random(AutoConfig.from_pretrained(MODEL), folder / "tiny-llama")


def make_experts(folder: Path) -> Path:
    """The same of a model with experts."""
    from transformers import AutoConfig

    return _random(AutoConfig.for_model("qwen3_moe", **EXPERTS), folder / "tiny-experts")


def _random(config: Any, target: Path) -> Path:
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(target)
    return target


def experts_cells() -> tuple[Cell, ...]:
    """Those of a model whose experts lie on several ranks."""
    return (
        Cell(loop="plain", strategy="fsdp_ep", expert_parallel=2),
        Cell(loop="accelerate", strategy="tp", tensor_parallel=2, expert_parallel=2),
        Cell(loop="trainer", strategy="fsdp_ep", expert_parallel=2),
        Cell(loop="accelerate", strategy="fsdp_ep", ranks=4, expert_parallel=2),
        Cell(loop="plain", strategy="fsdp_ep", ranks=4, expert_parallel=4, accumulation=1),
        Cell(loop="trainer", strategy="fsdp_tp", ranks=4, tensor_parallel=2, expert_parallel=4),
        Cell(loop="accelerate", strategy="hsdp_ep", ranks=4, expert_parallel=2, accumulation=1),
    )


def save_plan(cell: Cell, model: Path, folder: Path) -> Path:
    """The plan of a cell, made as a user makes it."""
    degrees = f"{cell.ranks}-{cell.expert_parallel}" if cell.expert_parallel > 1 else str(cell.ranks)
    path = folder / f"{cell.loop}-{cell.strategy}-{degrees}-{cell.micro_batch}x{cell.accumulation}.json"
    if path.exists():
        return path
    gpus = "cpu" if cell.ranks == 1 else f"{cell.ranks}xcpu"
    words = [str(model), "--gpus", gpus, "--strategy", cell.strategy, "--pin", "--precision", "fp32"]
    words += ["--seq-len", str(LENGTH), "--micro-batch", str(cell.micro_batch), "--save", str(path)]
    words += ["--grad-accum", str(cell.accumulation)] + (
        ["--dp-replicate", "2"] if cell.strategy.startswith("hsdp") else []
    )
    words += ["--tp", str(cell.tensor_parallel)] if cell.tensor_parallel > 1 else []
    words += ["--ep", str(cell.expert_parallel)] if cell.expert_parallel > 1 else []
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(words)
    if code:
        raise RuntimeError(f"plan {' '.join(words)} ended with {code}")
    return path


def launch(cell: Cell, model: Path, folder: Path, script: Path | None = None, arguments: Sequence[str] = ()) -> Ran:
    """Runs the cell's script under its plan, in a folder of its own, and reads what it left there."""
    plan = save_plan(cell, model, folder)
    where = folder / plan.stem / f"{cell.loop if script is None else script.stem}-{cell.variation.replace(' ', '-')}"
    where.mkdir(parents=True)
    path = script or SCRIPTS / LOOPS[cell.loop]
    words = [str(PLAN), "--plan", str(plan), "--execute", str(path), "--max-restarts", "0", "--"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*words, "--model", str(model), *(variation_words(cell) if script is None else ()), *arguments],
        cwd=where,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if not list_runs(where):
        raise RuntimeError(done.stderr[-4000:])
    (folder_of_run,) = list_runs(where)
    run = read_whole(folder_of_run)
    return Ran(cell=cell, code=done.returncode, output=done.stdout + done.stderr, run=run, comparison=compare_run(run))


def variation_words(cell: Cell) -> list[str]:
    """The script's own arguments for the cell's variation."""
    what = cell.what
    words = ["--max_grad_norm", str(what.clip), "--weight_decay", str(what.decay), "--dropout", str(what.dropout)]
    words += ["--samples", str(cell.samples)]
    if cell.loop == "trainer":
        words += ["--max_steps", str(STEPS)]
        return [*words, *(("--lr_scheduler_type", "linear", "--warmup_steps", "2") if what.schedule else ())]
    words += ["--steps", str(STEPS), "--random_dropout", str(what.random_dropout)]
    return [*words, *(("--schedule",) if what.schedule else ())]


def wrong_inside(ran: Ran) -> list[str]:
    """Where what the ranks saw of the job is not what was planned, or was not seen."""
    cell, found = ran.cell, []
    wanted = {
        "world_size": cell.ranks,
        "strategy": cell.strategy,
        "micro_batch_size": cell.micro_batch,
        "sequence_length": LENGTH,
        "gradient_accumulation_steps": cell.accumulation,
        "parameters": ran.run.plan.model.parameters if ran.run.plan else None,
    }
    ranks = ran.run.ranks
    if [rank.rank for rank in ranks] != list(range(cell.ranks)):
        found.append(f"records of ranks {[rank.rank for rank in ranks]}, not of all {cell.ranks}")
    for rank in ranks:
        for name, value in wanted.items():
            seen = getattr(rank.actual, name)
            if seen != value:
                found.append(f"rank {rank.rank}: {name} is {seen}, planned {value}")
        if rank.status != "done" or rank.summary.steps != STEPS:
            found.append(f"rank {rank.rank}: {rank.status} after {rank.summary.steps} steps")
        if any(step.loss is None for step in rank.steps):
            found.append(f"rank {rank.rank}: losses were not seen")
    found += [line for attempt in ran.run.record.attempts for line in attempt.deviations]
    return found


def furthest(ran: Ran, reference: Sequence[float]) -> float:
    """Largest relative difference of a step's loss."""
    pairs = zip(ran.losses, reference, strict=True)
    return max(abs(ours - theirs) / abs(theirs) for ours, theirs in pairs)
