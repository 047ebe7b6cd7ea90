"""What real stacks hold, run on the CPU with tiny models, against what a plan of them counts: every parameter's type
and bytes, gradients, the optimizer's state, and the facts of the stack's table that a run can show.

    .venv/bin/python -m benchmarks.real.stacks_cpu [STACK ...]

writes benchmarks/results/stacks_cpu.json and .md. Needs trl, peft, bitsandbytes; nothing of the planner runs in a step.
"""

import contextlib
import gc
import json
import logging
import os
import sys
import tempfile
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("ACCELERATE_USE_CPU", "true")

import torch

from benchmarks.places import RESULTS
from gpu_plan.planner.memory.optimizer.steps import LocalTensor, state_bytes
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.strategy.base import autocast_regime
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.session import TracingSession
from gpu_plan.planner.trace.static import static_trace
from gpu_plan.planner.workload.optimizers.registry import Optimizer
from gpu_plan.planner.workload.stacks.registry import Stack
from gpu_plan.planner.workload.training import Peft, Precision

STACKS = ("plain", "accelerate", "trainer", "peft", "trl")
MODELS = ("llama", "mixtral")
ADAPTERS = ("none", "lora", "qlora")
MIXED = Precision("bf16-mixed")
RANK, TARGETS = 4, ("q_proj", "v_proj")
BATCH, LENGTH = 2, 16
_SIZES = {
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 128,
}  # fmt: skip


@dataclass(slots=True)
class Seen:
    """What one real step showed."""

    parameters: dict[str, tuple[str, int]] = field(default_factory=dict)
    """dtype and bytes by name, packed weights with their scales apart."""
    scales: int = 0
    gradients: dict[str, tuple[str, int]] = field(default_factory=dict)
    state: int = 0
    optimizer: str = ""
    clip: float | None = None
    reentrant: bool | None = None
    outputs_alive: bool | None = None
    """Whether the model's outputs were still named when backward began."""
    logits: bool | None = None
    """Whether outputs held whole logits."""


def save_model(kind: str, folder: Path) -> None:
    """A tiny checkpoint in bfloat16."""
    from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

    torch.manual_seed(0)
    if kind == "llama":
        model: Any = LlamaForCausalLM(LlamaConfig(**_SIZES))
    else:
        model = MixtralForCausalLM(MixtralConfig(num_local_experts=4, num_experts_per_tok=2, **_SIZES))
    model.to(torch.bfloat16).save_pretrained(folder)


def load(folder: Path, adapters: str) -> Any:
    """As a user loads it for bf16 training: fp32 to train in full, bf16 under adapters, packed under QLoRA."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    given: dict[str, Any] = {"dtype": torch.float32 if adapters == "none" else torch.bfloat16}
    if adapters == "qlora":
        packed = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
        given |= {"quantization_config": packed, "device_map": "cpu"}
    return AutoModelForCausalLM.from_pretrained(folder, **given)


def lora() -> Any:
    import peft

    return peft.LoraConfig(r=RANK, target_modules=list(TARGETS), task_type="CAUSAL_LM")


def adapted(model: Any, adapters: str) -> Any:
    """As peft's guides have it."""
    import peft

    if adapters == "none":
        return model
    if adapters == "qlora":
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return peft.get_peft_model(model, lora())


def rows() -> list[dict[str, list[int]]]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 500, (8, LENGTH), generator=generator).tolist()
    return [{"input_ids": row, "attention_mask": [1] * LENGTH, "labels": list(row)} for row in ids]


def run(stack: str, adapters: str, folder: Path) -> Seen:
    """One step of the real stack."""
    seen = Seen()
    with _watched(seen) as watch:
        model = load(folder, adapters)
        if stack == "trl":
            _trl(model, adapters, folder, watch)
        elif stack == "trainer":
            _trainer(adapted(model, adapters), folder, watch)
        else:
            _loop(adapted(model, adapters), wrapped=stack != "plain", watch=watch)
    return seen


def _loop(model: Any, *, wrapped: bool, watch: Any) -> None:
    from accelerate import Accelerator

    watch(
        model.train()
    )  # else bitsandbytes packs frozen layers anew for a CPU's bf16 (nn/modules.py: Linear4bit.forward)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer: Any = torch.optim.AdamW(trained, lr=1e-4)
    batch = {key: torch.tensor([row[key] for row in rows()[:BATCH]]) for key in rows()[0]}
    if wrapped:
        accelerator = Accelerator(mixed_precision="bf16", cpu=True)
        model, optimizer = accelerator.prepare(model, optimizer)
        outputs = model(**batch)
        watch.named(outputs)  # what Accelerate's wrapper gives is not what the model gave
        accelerator.backward(outputs.loss)
    else:
        with torch.autocast("cpu", torch.bfloat16):
            outputs = model(**batch)
        outputs.loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def _arguments(folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder / "out"), "max_steps": 1, "per_device_train_batch_size": BATCH, "bf16": True,
        "use_cpu": True, "report_to": [], "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no",
    }  # fmt: skip


def _trainer(model: Any, folder: Path, watch: Any) -> None:
    from transformers import Trainer, TrainingArguments, default_data_collator

    watch(model)
    arguments = TrainingArguments(**_arguments(folder))
    Trainer(model=model, args=arguments, train_dataset=rows(), data_collator=default_data_collator).train()


def _trl(model: Any, adapters: str, folder: Path, watch: Any) -> None:
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    words = {f"w{index}": index for index in range(510)} | {"<pad>": 510, "<eos>": 511}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="w0")), pad_token="<pad>", eos_token="<eos>"
    )
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(**_arguments(folder)),
        train_dataset=Dataset.from_list([{"input_ids": row["input_ids"]} for row in rows()]),
        processing_class=tokenizer,
        peft_config=None if adapters == "none" else lora(),
    )
    watch(trainer.model)
    trainer.train()


@contextlib.contextmanager
def _watched(seen: Seen) -> Iterator[Any]:
    """Notes types and bytes before the optimizer's first step, its state after it, and what the loop does."""
    import torch.utils.checkpoint as checkpoint
    from torch.optim import optimizer as optim

    found: dict[str, Any] = {}

    def watch(model: Any) -> None:
        found["model"] = weakref.ref(model)
        base = model.get_base_model() if hasattr(model, "get_base_model") else model

        def after(module: Any, args: Any, outputs: Any) -> None:
            found["outputs"] = weakref.ref(outputs)
            seen.logits = getattr(outputs, "logits", None) is not None

        base.register_forward_hook(after)

    watch.named = lambda outputs: found.update(outputs=weakref.ref(outputs))  # type: ignore[attr-defined]

    def before(made: Any, *_: Any) -> None:
        if seen.optimizer:
            return
        model = found["model"]()
        seen.optimizer = "fused" if made.param_groups[0].get("fused") else "foreach or loop"
        for name, parameter in model.named_parameters():
            seen.parameters[name] = (_dtype(parameter), parameter.numel() * parameter.element_size())
            seen.scales += _scales(parameter)
            if parameter.grad is not None:
                seen.gradients[name] = (_dtype(parameter.grad), parameter.grad.numel() * parameter.grad.element_size())

    def stepped(made: Any, *_: Any) -> None:
        seen.state = seen.state or sum(
            value.numel() * value.element_size()
            for entry in made.state.values()
            for key, value in entry.items()
            if isinstance(value, torch.Tensor) and key != "step"
        )

    backward, clip, run_checkpoint = torch.Tensor.backward, torch.nn.utils.clip_grad_norm_, checkpoint.checkpoint

    def goes_back(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        gc.collect()
        seen.outputs_alive = "outputs" in found and found["outputs"]() is not None
        return backward(self, *args, **kwargs)

    def clips(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Any:
        seen.clip = float(max_norm)
        return clip(parameters, max_norm, *args, **kwargs)

    def checkpoints(*args: Any, use_reentrant: Any = None, **kwargs: Any) -> Any:
        seen.reentrant = bool(use_reentrant)
        return run_checkpoint(*args, use_reentrant=use_reentrant, **kwargs)

    hooks = (optim.register_optimizer_step_pre_hook(before), optim.register_optimizer_step_post_hook(stepped))
    with (
        mock.patch.object(torch.Tensor, "backward", goes_back),
        mock.patch.object(torch.nn.utils, "clip_grad_norm_", clips),
        mock.patch.object(checkpoint, "checkpoint", checkpoints),
        mock.patch("transformers.modeling_utils.checkpoint", checkpoints),
    ):
        try:
            yield watch
        finally:
            for hook in hooks:
                hook.remove()


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _scales(parameter: Any) -> int:
    """Bytes of a packed weight's quantisation state."""
    state = getattr(parameter, "quant_state", None)
    if state is None:
        return 0
    tensors = [
        state.absmax,
        state.code,
        *([state.offset, state.state2.absmax, state.state2.code] if state.nested else []),
    ]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plan's side."""

    parameters: dict[str, tuple[str, int]]
    scales: int
    gradients: dict[str, tuple[str, int]]
    state: int
    fused: bool | None
    """None: nothing is known of the stack's optimizer."""


def plan(stack: Stack, adapters: str, folder: Path) -> Planned:
    """What the planner counts, from the stack's table and the model's class on meta."""
    peft = Peft(adapters)
    adapter = Adapter(peft=peft, rank=RANK, targets=TARGETS) if peft.adapts else None
    session = TracingSession(resolve(str(folder)), DeviceKind(capability=None), "sdpa", adapter)
    regime = autocast_regime(MIXED, stack, peft)
    found = static_trace(session.spec(), regime).parameters
    parameters = {
        p.name: (p.dtype, p.numel * torch.empty((), dtype=getattr(torch, p.dtype)).element_size()) for p in found
    }
    trained = [p for p in found if p.trainable]
    local = [LocalTensor(name=p.name, numel=p.numel, dtype=p.dtype, shape=p.shape) for p in trained]
    from gpu_plan.planner.trace.setup.adapters import quantisation_scales

    scales = quantisation_scales(session._model)
    return Planned(
        parameters=parameters,
        scales=sum(b.numel() * b.element_size() for b in session._model.buffers() if id(b) in scales),
        gradients={p.name: parameters[p.name] for p in trained},
        state=state_bytes(Optimizer("adamw"), local),
        fused="fused" in stack.traits.optimizer if stack.traits.optimizer else None,
    )


def compare(stack: str, adapters: str, kind: str, folder: Path) -> dict[str, Any]:
    """One row: bytes on both sides, and every parameter that differs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        real, ours = run(stack, adapters, folder), plan(Stack(stack), adapters, folder)
    traits = Stack(stack).traits
    names = sorted(real.parameters.keys() | ours.parameters.keys())
    odd = [
        f"{name}: {real.parameters.get(name)} and not {ours.parameters.get(name)}"
        for name in names
        if real.parameters.get(name) != ours.parameters.get(name)
    ]
    experts = {name: dtype for name, (dtype, _) in real.parameters.items() if ".experts." in name}
    sums = {
        "parameters": (sum(size for _, size in real.parameters.values()), sum(s for _, s in ours.parameters.values())),
        "scales": (real.scales, ours.scales),
        "gradients": (sum(size for _, size in real.gradients.values()), sum(s for _, s in ours.gradients.values())),
        "optimizer_state": (real.state, ours.state),
    }
    facts = {
        "outputs are gone before backward": (not real.outputs_alive, traits.drops_outputs),
        "clips to": (real.clip, traits.clip),
        "whole logits": (real.logits, not traits.loss),
    }
    if ours.fused is not None:
        facts["fused optimizer"] = (real.optimizer == "fused", ours.fused)
    return {
        "stack": stack, "adapters": adapters, "model": kind, "bytes": sums,
        "differing_parameters": odd, "differing_gradients": sorted(real.gradients.items() ^ ours.gradients.items()),
        "facts": facts, "experts": experts, "reentrant": real.reentrant,
        "equal": not odd and real.gradients == ours.gradients and all(a == b for a, b in sums.values()),
        "facts_hold": all(a == b for a, b in facts.values()),
    }  # fmt: skip


def cases(stacks: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """(stack, adapters, model); peft without adapters is nothing."""
    return [(s, a, m) for m in MODELS for a in ADAPTERS for s in stacks if s != "peft" or a != "none"]


def main(arguments: list[str]) -> int:
    logging.disable(logging.WARNING)
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for kind in MODELS:
            save_model(kind, Path(scratch) / kind)
        for stack, adapters, kind in cases(tuple(arguments) or STACKS):
            found.append(compare(stack, adapters, kind, Path(scratch) / kind))
            row = found[-1]
            said = "equal" if row["equal"] else f"DIFFERS {row['bytes']} {row['differing_parameters'][:4]}"
            print(f"{kind:8} {adapters:6} {stack:11} {said}; facts {'hold' if row['facts_hold'] else row['facts']}")
    if not arguments:
        _write(found)
    return 0 if all(row["equal"] and row["facts_hold"] for row in found) else 1


def _write(found: list[dict[str, Any]]) -> None:
    RESULTS.joinpath("stacks_cpu.json").write_text(json.dumps(found, indent=1) + "\n")
    head = ["model", "adapters", "stack", "parameters", "scales", "gradients", "optimizer state", "equal", "facts"]
    lines = [
        "# Stacks against their real libraries, tiny models on a CPU", "",
        "`python -m benchmarks.real.stacks_cpu`; bytes of the real run, equal to the plan's where it says so.", "",
        f"| {' | '.join(head)} |", f"|{'---|' * len(head)}",
    ]  # fmt: skip
    for row in found:
        sizes = [f"{real:,}" if real == ours else f"{real:,} (plan {ours:,})" for real, ours in row["bytes"].values()]
        wrong = [f"{name}: {a}, not {b}" for name, (a, b) in row["facts"].items() if a != b]
        cells = [row["model"], row["adapters"], row["stack"], *sizes, "yes" if row["equal"] else "no"]
        lines.append(f"| {' | '.join([*cells, 'hold' if not wrong else '; '.join(wrong)])} |")
    RESULTS.joinpath("stacks_cpu.md").write_text("\n".join([*lines, *_every_stack(found)]) + "\n")


def _every_stack(found: list[dict[str, Any]]) -> list[str]:
    """Every stack, and what of it was compared here; what was only read names its files."""
    lines = ["", "## Every stack, and what was compared", "", "| stack | project | compared |", "|---|---|---|"]
    for stack in Stack:
        traits = stack.traits
        of = f"{traits.project} {traits.version}".strip() + (f" at {traits.commit[:12]}" if traits.commit else "")
        mine = [row for row in found if row["stack"] == stack.value]
        if mine:
            equal = sum(row["equal"] and row["facts_hold"] for row in mine)
            told = (
                f"run: {equal} of {len(mine)} jobs equal in types and bytes of parameters, gradients and optimizer "
                "state, and in clipping, loss and what is held as backward begins"
            )
        else:
            read = "; ".join(f"{fact.about}: `{fact.source}`" for fact in traits.facts if fact.source)
            told = f"read, not run: {read}"
        lines.append(f"| {stack.value} | {of} | {told} |")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
