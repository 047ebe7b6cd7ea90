"""What Megatron's own Python costs the host for an operator: processor time, over that of an operator of a Llama
without gradients in the same process.

    pip install -c constraints.txt --no-deps megatron-core==0.16.1
    .venv/bin/python -m benchmarks.real.megatron_operators --older FOLDER [--layers NAME]

writes benchmarks/results/megatron_operators.json anew, its sum too; with --layers the rounds of `megatron-core` or
`megatron-deepspeed` alone, beside the other's that are there. Real layers of Megatron-core and, of FOLDER, those of
bigscience-workshop/Megatron-DeepSpeed (a folder that holds its `megatron`), whose checkpoints and generators are
DeepSpeed's own as its launches ask for, so narrow that their operators compute next to nothing; tensor parallel ranks
by torch's fake process group, whose collectives end at once. Layers alone: eight less two. The generators of a GPU are
ones of the host, and what is one kernel on a GPU is its operators, since only what an operator costs is used
(planner/speed/efficiency.toml: issuing).

Other work on the machine lengthens every call: hence calls of both kinds turn about in one process, each by its least
processor time of all turns, and a ratio of these for every round, which is a process of its own. A job's figure is the
median of its rounds; `expected` that of the jobs, `slow` and `fast` the jobs' highest and lowest.
"""

import argparse
import contextlib
import itertools
import json
import logging
import math
import subprocess
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from benchmarks.places import RESULTS
from benchmarks.real.host_operators import Counted, narrow_llama

RESULT = RESULTS / "megatron_operators.json"
_RANKS, _ROUNDS, _TURNS, _WARM = (1, 2, 8), 5, 30, 3
_CORE, _OLDER = "megatron-core", "megatron-deepspeed"
_DROPOUTS = {_CORE: (0.1, 0.0), _OLDER: (0.1,)}
_KINDS = ("recording", "checkpointed")
_HIDDEN, _HEADS, _TOKENS, _VOCABULARY = 64, 16, 8, 1024
_MOST, _LEAST = 8, 2
Round = dict[str, float]


def main(arguments: list[str] | None = None) -> None:
    """Writes the ratios; with --one prints those of one process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real.megatron_operators", allow_abbrev=False)
    parser.add_argument(
        "--older", type=Path, required=True, metavar="FOLDER", help="with Megatron-DeepSpeed's megatron"
    )
    parser.add_argument("--layers", choices=list(_DROPOUTS), help="these alone, beside the others' of the file")
    parser.add_argument("--one", nargs=3, metavar=("LAYERS", "RANKS", "DROPOUT"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one is not None:
        layers, ranks, dropout = given.one
        print(json.dumps(_round(layers, int(ranks), float(dropout), given.older)))
        return
    if not (given.older / "megatron" / "mpu").is_dir():
        parser.error(f"--older {given.older}: no folder of Megatron-DeepSpeed, megatron/mpu is not in it")
    found: dict[str, dict[str, list[Round]]] = json.loads(RESULT.read_text())["rounds"] if given.layers else {}
    asked = [layers for layers in _DROPOUTS if given.layers in (None, layers)]
    found |= {layers: {} for layers in asked}
    for _ in range(_ROUNDS):  # a busy quarter of an hour then lies on every job's rounds, not on one job's
        for layers in asked:
            dropouts = _DROPOUTS[layers]
            for ranks, dropout in itertools.product(_RANKS, dropouts):
                known = found[layers].setdefault(f"TP {ranks}, dropout {dropout}", [])
                known.append(_in_a_process(layers, ranks, dropout, given.older))
    told = {layers: summed(jobs) for layers, jobs in found.items()}
    RESULT.write_text(json.dumps({"issuing": told, "rounds": found}, indent=1) + "\n")
    print(json.dumps(told, indent=1))


def summed(jobs: Mapping[str, Sequence[Round]]) -> dict[str, dict[str, float]]:
    """Highest, median and lowest of the jobs, each the median of its rounds."""
    found = {}
    for kind in _KINDS:
        each = [median(one[kind] for one in rounds) for rounds in jobs.values()]
        found[kind] = {
            name: round(value, 2)
            for name, value in (("slow", max(each)), ("expected", median(each)), ("fast", min(each)))
        }
    return found


def _in_a_process(layers: str, ranks: int, dropout: float, older: Path) -> Round:
    words = [sys.executable, "-m", "benchmarks.real.megatron_operators", "--older", str(older)]
    words += ["--one", layers, str(ranks), str(dropout)]
    out = subprocess.run(words, check=True, capture_output=True, text=True, timeout=900).stdout
    found: Round = json.loads(out.splitlines()[-1])
    return found


def _round(layers: str, ranks: int, dropout: float, older: Path) -> Round:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    _without_cuda()
    make = _core(ranks) if layers == _CORE else _older(older, ranks)
    llama, tokens = narrow_llama(adapters=False), torch.randint(0, 256, (1, _TOKENS))

    def inferred() -> None:
        with torch.no_grad():
            llama(tokens)

    calls = {
        (kind, number): make(number, kind == "checkpointed", dropout) for kind in _KINDS for number in (_MOST, _LEAST)
    }
    (alone, count), *others = _turn_about((inferred, *calls.values()))
    each = alone / count
    line = {"no_grad_us": round(each * 1e6, 1)}
    spent = dict(zip(calls, others, strict=True))
    for kind in _KINDS:
        (most, many), (least, few) = spent[kind, _MOST], spent[kind, _LEAST]
        line[kind] = round((most - least) / (many - few) / each, 2)
        line[f"{kind}_operators_a_layer"] = (many - few) / (_MOST - _LEAST)
    return line


def _turn_about(calls: Sequence[Callable[[], None]]) -> list[tuple[float, int]]:
    """Least processor time of each call in all turns, and its operators."""
    counts = []
    for call in calls:
        for _ in range(_WARM):
            call()
        with Counted() as counted:
            call()
        counts.append(counted.count)
    spent = [math.inf] * len(calls)
    for _ in range(_TURNS):
        for index, call in enumerate(calls):
            begun = time.process_time()
            call()
            spent[index] = min(spent[index], time.process_time() - begun)
    return list(zip(spent, counts, strict=True))


def _without_cuda() -> None:
    """The device is the host, and has a generator of its own."""
    device = torch.Generator()
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
    torch.cuda.get_rng_state = lambda *_, **__: device.get_state()
    torch.cuda.manual_seed = lambda *_: None
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign,assignment]


def _core(ranks: int) -> Callable[[int, bool, float], Callable[[], None]]:
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.transformer_config import TransformerConfig

    device = torch.Generator()
    random._get_cuda_rng_state = lambda *_, **__: device.get_state()
    random._set_cuda_rng_state = lambda state, *_, **__: device.set_state(state)
    # Without Transformer Engine 0.16.1 leaves names out that it asks for.
    random.FP8GlobalStateManager = mock.Mock(is_fp8_enabled=lambda: False)
    random.activation_recompute_forward = lambda **_: contextlib.nullcontext()
    random.fp8_autocast = lambda **_: contextlib.nullcontext()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks, create_gloo_process_groups=False)
    random.model_parallel_cuda_manual_seed(1)
    tokens, places = torch.randint(0, 256, (1, _TOKENS)), torch.arange(_TOKENS)[None]
    mask = torch.ones(1, 1, _TOKENS, _TOKENS, dtype=torch.bool).triu(1)

    def make(layers: int, again: bool, dropout: float) -> Callable[[], None]:
        more = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        config = TransformerConfig(
            num_layers=layers, hidden_size=_HIDDEN, ffn_hidden_size=4 * _HIDDEN, num_attention_heads=_HEADS,
            use_cpu_initialization=True, hidden_dropout=dropout, attention_dropout=dropout,
            bias_activation_fusion=False, bias_dropout_fusion=False, masked_softmax_fusion=False,
            gradient_accumulation_fusion=False, tensor_model_parallel_size=ranks, **(more if again else {}),
        )  # fmt: skip
        model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=_VOCABULARY, max_sequence_length=_TOKENS)

        def step() -> None:
            model(tokens, places, mask, labels=tokens).mean().backward()
            for parameter in model.parameters():
                parameter.grad = None

        return step

    return make


def _older(folder: Path, ranks: int) -> Callable[[int, bool, float], Callable[[], None]]:
    """Without its package, which asks for apex: its mpu and its transformer."""
    told: dict[str, Any] = {}
    package = types.ModuleType("megatron")
    package.__path__ = [str(folder / "megatron")]
    package.get_args = lambda: told["arguments"]  # type: ignore[attr-defined]
    model, norms, log = (
        types.ModuleType(f"megatron.{name}") for name in ("model", "model.fused_layer_norm", "logging")
    )
    model.__path__ = [str(folder / "megatron" / "model")]
    norms.MixedFusedLayerNorm = torch.nn.LayerNorm  # type: ignore[attr-defined]
    log.get_logger = logging.getLogger  # type: ignore[attr-defined]
    package.logging = log  # type: ignore[attr-defined]
    sys.modules |= {one.__name__: one for one in (package, model, norms, log)}
    for name in (
        "set_profiling_mode",
        "set_profiling_executor",
        "override_can_fuse_on_cpu",
        "override_can_fuse_on_gpu",
    ):
        setattr(torch._C, f"_jit_{name}", lambda *_: None)
    from megatron import mpu
    from megatron.enums import AttnMaskType, PositionEmbeddingType
    from megatron.model.transformer import ParallelTransformer
    from megatron.model.utils import init_method_normal
    from megatron.mpu import random

    device = torch.Generator()
    random._set_cuda_rng_state = lambda state, *_, **__: device.set_state(state)
    mpu.initialize_model_parallel(ranks, 1)
    _by_deepspeed(mpu, ranks)
    mpu.model_parallel_cuda_manual_seed(1)
    mask = torch.ones(1, 1, _TOKENS, _TOKENS, dtype=torch.bool).triu(1)

    def make(layers: int, again: bool, dropout: float) -> Callable[[], None]:
        set_ = {
            "num_layers": layers, "hidden_size": _HIDDEN, "ffn_hidden_size": 4 * _HIDDEN, "seq_length": _TOKENS,
            "num_attention_heads": _HEADS, "kv_channels": _HIDDEN // _HEADS, "hidden_dropout": dropout,
            "attention_dropout": dropout, "checkpoint_activations": again, "checkpoint_num_layers": 1,
            "use_cpu_initialization": True, "params_dtype": torch.float32, "layernorm_epsilon": 1e-5,
            "micro_batch_size": 1, "init_method_std": 0.02, "tensor_model_parallel_size": ranks,
            "position_embedding_type": PositionEmbeddingType.absolute, "virtual_pipeline_model_parallel_size": None,
        }  # fmt: skip
        told["arguments"] = _Arguments(set_)
        init = init_method_normal(0.02)
        stack = ParallelTransformer(init, init, self_attn_mask_type=AttnMaskType.padding).train()
        given = torch.randn(1, _TOKENS, _HIDDEN, requires_grad=True)

        def step() -> None:
            stack(given, mask).mean().backward()
            for one in (*stack.parameters(), given):
                one.grad = None

        return step

    return make


def _by_deepspeed(mpu: Any, ranks: int) -> None:
    """Its checkpoints and generators in place of Megatron's (megatron/initialize.py:
    setup_deepspeed_random_and_activation_checkpointing); --deepspeed-activation-checkpointing stands in BLOOM's launch
    (bigscience-workshop/bigscience train/tr11-176B-ml/tr11-176B-ml.slurm) and in microsoft's examples."""
    from deepspeed.comm import comm
    from deepspeed.runtime.activation_checkpointing import checkpointing

    # It asks for its own backend, which knows no fake process group.
    comm.cdb = mock.Mock(
        is_initialized=lambda: True, get_rank=lambda group=None: 0, get_world_size=lambda group=None: ranks
    )
    checkpointing.configure(
        mpu,
        partition_activations=False,
        contiguous_checkpointing=False,
        num_checkpoints=_MOST,
        checkpoint_in_cpu=False,
        synchronize=False,
        profile=False,
    )
    mpu.checkpoint = checkpointing.checkpoint
    mpu.get_cuda_rng_tracker = checkpointing.get_cuda_rng_tracker
    mpu.model_parallel_cuda_manual_seed = checkpointing.model_parallel_cuda_manual_seed


class _Arguments:
    """Megatron's arguments; a flag that is not said is off."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.__dict__.update(told)

    def __getattr__(self, name: str) -> bool:
        return False


if __name__ == "__main__":
    main()
