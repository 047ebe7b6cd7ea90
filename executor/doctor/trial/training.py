"""One step of a small model under the planned strategy, against that of one process; and who saw which sample."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, gather_object
from torch import nn
from torch.utils.data import DataLoader, Dataset

from gpu_plan.executor.doctor.trial.outcome import Tested

WIDTH = 64
_LAYERS = 2
_RATE = 10.0
_MODE = {torch.bfloat16: "bf16", torch.float16: "fp16"}
"""accelerate's word for a computation in a type that the weights have as well."""
_TOLERANCE = {"no": 1e-3, "bf16": 0.25, "fp16": 0.1, "fp8": 0.5}
"""Of the step's length. A step on one rank's samples alone is about its whole length away."""
_TRIES = 24
"""fp16 skips steps until its scale has come down."""


class Block(nn.Module):  # type: ignore[misc]
    """What FSDP wraps; takes the name of the planned model's blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + torch.tanh(self.linear(inputs))


class Small(nn.Module):  # type: ignore[misc]
    """A few blocks, and a weight that no block holds."""

    def __init__(self) -> None:
        super().__init__()
        names = [name for name in os.environ.get("FSDP_TRANSFORMER_CLS_TO_WRAP", "").split(",") if name] or ["Block"]
        kinds = [Block if name == "Block" else type(name, (Block,), {}) for name in names]
        self._no_split_modules = names
        self.blocks = nn.ModuleList(kinds[index % len(kinds)]() for index in range(max(_LAYERS, len(kinds))))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            inputs = block(inputs)
        result: torch.Tensor = self.head(inputs)
        return result


class Samples(Dataset[dict[str, torch.Tensor]]):  # type: ignore[misc]
    """Numbered samples; each one's target pulls another way, so that ranks' gradients differ."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(99)
        self.inputs = torch.randn(count, WIDTH, generator=generator)
        self.targets = torch.randn(count, WIDTH, generator=generator)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"index": torch.tensor(index), "inputs": self.inputs[index], "targets": self.targets[index]}


def _loss(model: nn.Module, batch: dict[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    # Gradients stay below norm 1, to which the plan may be told to clip; the rate makes up for it.
    # DeepSpeed's engine computes in its weights' type and casts nothing on the way in; others cast, or autocast.
    engine = hasattr(model, "zero_optimization_stage")
    outputs = model(batch["inputs"].to(next(model.parameters()).dtype if engine else dtype))
    return nn.functional.mse_loss(outputs.float(), batch["targets"].float()) * 0.1


@dataclass(slots=True)
class Trained:
    """What the step left behind, on the main rank."""

    before: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor] | None
    seen: list[int]
    wrapped: str


def tests(accelerator: Accelerator, micro_batch: int, dtype: torch.dtype) -> Iterator[tuple[Tested, str]]:
    """Shares of the data, then the step; beside each the class around the model."""
    world, steps = accelerator.num_processes, accelerator.gradient_accumulation_steps
    count = world * micro_batch * steps + world * micro_batch + 1
    data = Samples(count)
    torch.manual_seed(5)
    model = Small().to(dtype)
    before = {name: tensor.detach().clone().float() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, eps=1.0, weight_decay=0.0, betas=(0.0, 0.0))
    loader = DataLoader(data, batch_size=micro_batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    wrapped = _class_around(model)
    for tested in _shares(accelerator, loader, count):
        yield tested, wrapped
    seen = _step(accelerator, model, optimizer, loader, steps, dtype)
    after = _full_state(accelerator, model)
    mode = accelerator.mixed_precision if dtype is torch.float32 else _MODE[dtype]
    everyone = list(gather_object([seen])) if world > 1 else [seen]
    told = ""
    if accelerator.is_main_process and after is not None:
        told = _compared(before, after, data, everyone, dtype, _TOLERANCE.get(mode, 0.5))
    elif accelerator.is_main_process:
        told = "?the full weights cannot be gathered under this strategy"
    told = str(next(iter(gather_object([told])))) if world > 1 else told
    passed = None if told.startswith("?") else not told
    yield Tested(name="a training step equals that of one process", passed=passed, detail=told.lstrip("?")), wrapped


def _class_around(model: nn.Module) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


def _shares(accelerator: Accelerator, loader: DataLoader[dict[str, torch.Tensor]], count: int) -> Iterator[Tested]:
    """An epoch: every sample once, none of them twice but those that fill the last batch, the same order for all."""
    mine: list[int] = []
    measured: list[int] = []
    for batch in loader:
        mine += batch["index"].tolist()
        measured += accelerator.gather_for_metrics(batch["index"]).tolist()
    shares = list(gather_object([mine])) if accelerator.num_processes > 1 else [mine]
    together = Counter(index for share in shares for index in share)
    missing = count - len(together)
    spare = sum(together.values()) - count
    fits = missing == 0 and 0 <= spare < max(len(shares) * max(len(share) for share in shares), 1)
    distinct = len({tuple(share) for share in shares}) == len(shares)
    yield Tested(
        name="ranks share the data out",
        passed=fits and distinct and spare <= _filling(shares, count),
        detail=f"{count} samples: {missing} never seen, {spare} seen again to fill up",
    )
    once = sorted(measured) == list(range(count))
    yield Tested(
        name="gather_for_metrics gives every sample once",
        passed=once,
        detail="" if once else f"{len(measured)} results for {count} samples",
    )


def _filling(shares: list[list[int]], count: int) -> int:
    """How many samples even batches may add: as many as make all shares as long as the longest."""
    longest = max(len(share) for share in shares)
    return longest * len(shares) - count


def _step(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[dict[str, torch.Tensor]],
    steps: int,
    dtype: torch.dtype,
) -> list[int]:
    """One optimizer step over `steps` micro batches; numbers of the samples of this rank."""
    for _ in range(_TRIES):
        seen: list[int] = []
        for position, batch in enumerate(loader):
            if position == steps:
                break
            with accelerator.accumulate(model):
                accelerator.backward(_loss(model, batch, dtype))
                optimizer.step()
                optimizer.zero_grad()
            seen += batch["index"].tolist()
        if not accelerator.optimizer_step_was_skipped:
            return seen
    raise RuntimeError(f"the optimizer skipped {_TRIES} steps: fp16 gradients overflow")


def _full_state(accelerator: Accelerator, model: nn.Module) -> dict[str, torch.Tensor] | None:
    """All weights on the main rank, or None where they cannot be had."""
    engine_stage = getattr(model, "zero_optimization_stage", None)
    if accelerator.distributed_type == DistributedType.DEEPSPEED and engine_stage is not None and engine_stage() == 3:
        import deepspeed  # type: ignore[import-untyped]

        unwrapped = accelerator.unwrap_model(model)
        with deepspeed.zero.GatheredParameters(list(unwrapped.parameters())):
            return {name: tensor.detach().float().cpu().clone() for name, tensor in unwrapped.named_parameters()}
    if accelerator.distributed_type == DistributedType.FSDP and not accelerator.is_fsdp2:
        from torch.distributed.fsdp import FullyShardedDataParallel

        # Its full state dict reads freed storage where parameters are on the CPU anyway.
        with FullyShardedDataParallel.summon_full_params(model, writeback=False):
            return {name: tensor.detach().float().cpu().clone() for name, tensor in model.named_parameters()}
    try:
        state = accelerator.get_state_dict(model)
    except (ValueError, NotImplementedError):
        return None
    return {name: tensor.detach().float().cpu() for name, tensor in (state or {}).items()}


def _compared(
    before: dict[str, torch.Tensor],
    after: dict[str, torch.Tensor],
    data: Samples,
    seen: list[list[int]],
    dtype: torch.dtype,
    tolerance: float,
) -> str:
    """Empty where the weights moved as they do on one process that sees all ranks' samples; else by how much not."""
    reference = Small().to(dtype)
    reference.load_state_dict({name: tensor.to(dtype) for name, tensor in before.items()})
    reference = reference.float()
    optimizer = torch.optim.AdamW(reference.parameters(), lr=_RATE, eps=1.0, weight_decay=0.0, betas=(0.0, 0.0))
    indices = torch.tensor([index for share in seen for index in share])
    batch = {"inputs": data.inputs[indices], "targets": data.targets[indices]}
    _loss(reference, batch, torch.float32).backward()
    optimizer.step()
    state = {name.removeprefix("_orig_mod."): tensor for name, tensor in after.items()}
    wanted = torch.cat([(tensor - before[name]).flatten() for name, tensor in reference.state_dict().items()])
    missing = [name for name in before if name not in state]
    if missing:
        return f"?weights {', '.join(missing[:2])} are not in the gathered state"
    moved = torch.cat([(state[name].reshape(before[name].shape) - before[name]).flatten() for name in before])
    away = ((moved - wanted).norm() / wanted.norm()).item()
    return "" if away <= tolerance else f"weights moved {away:.0%} of a step's length away from where they should"
