"""A folded trace is the full one: every event, byte, FLOP and reference, over architectures and variants."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from torch import nn

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.catalog_index import load_index
from gpu_plan.planner.model.family import has_sequence
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_batch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.support.same_trace import assert_same_trace
from tests.support.sample import sample

BF16 = Regime(weights="bfloat16")
AUTOCAST = Regime(weights="float32", autocast="bfloat16", outputs_to_fp32=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deep:
    """A catalog model at a depth that folds; widths are the published ones, which cost a meta device nothing."""

    model: str
    changes: dict[str, Any] = field(default_factory=dict)
    folds: dict[str, list[tuple[int, int, int]]]
    """By list of blocks: (first block, blocks per unit, units) of every run that is folded."""
    seq_len: int = 64

    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(load_index()[self.model].path.read_text())
        for key, value in self.changes.items():
            part = config
            *path, last = key.split(".")
            for name in path:
                part = part[name]
            part[last] = value
        return config


MODELS = {
    "llama": Deep(
        model="meta-llama/Llama-3.1-8B", changes={"num_hidden_layers": 9}, folds={"model.layers": [(0, 1, 9)]}
    ),
    "gemma-2": Deep(
        model="google/gemma-2-2b",
        changes={"num_hidden_layers": 13, "layer_types": None},
        folds={"model.layers": [(0, 2, 7)]},
    ),
    "gemma-3": Deep(
        model="google/gemma-3-1b-it",
        changes={"num_hidden_layers": 33, "layer_types": None},
        folds={"model.layers": [(0, 6, 7)]},
    ),
    "qwen3-moe": Deep(
        model="Qwen/Qwen3-30B-A3B", changes={"num_hidden_layers": 8}, folds={"model.layers": [(0, 1, 8)]}
    ),
    "deepseek-v3": Deep(
        model="deepseek-ai/DeepSeek-V3",
        changes={"num_hidden_layers": 12, "first_k_dense_replace": 5},
        folds={"model.layers": [(0, 1, 5), (5, 1, 7)]},
    ),
    "mamba": Deep(
        model="state-spaces/mamba-2.8b-hf",
        changes={"num_hidden_layers": 10, "n_layer": 10},
        folds={"backbone.layers": [(0, 1, 10)]},
    ),
    "mamba-2": Deep(
        model="mistralai/Mamba-Codestral-7B-v0.1",
        changes={"num_hidden_layers": 8},
        folds={"backbone.layers": [(0, 1, 8)]},
    ),
    "qwen3-next": Deep(
        model="Qwen/Qwen3-Next-80B-A3B-Instruct",
        changes={"num_hidden_layers": 24, "layer_types": None},
        folds={"model.layers": [(0, 4, 7)]},
    ),
    "jamba": Deep(model="ai21labs/Jamba-v0.1", changes={"num_hidden_layers": 40}, folds={"model.layers": [(0, 8, 6)]}),
    "t5": Deep(
        model="google-t5/t5-small",
        changes={"num_layers": 9, "num_decoder_layers": 8},
        folds={"encoder.block": [(1, 1, 8)], "decoder.block": [(1, 1, 7)]},
    ),
    "whisper": Deep(
        model="openai/whisper-tiny",
        changes={"encoder_layers": 8, "decoder_layers": 9},
        folds={"model.encoder.layers": [(0, 1, 8)], "model.decoder.layers": [(0, 1, 9)]},
    ),
    "bert": Deep(model="google-bert/bert-base-uncased", folds={"encoder.layer": [(0, 1, 12)]}),
    "vit": Deep(model="google/vit-base-patch16-224", folds={"vit.layers": [(0, 1, 12)]}),
    "bart": Deep(
        model="facebook/bart-large",
        changes={"encoder_layers": 8, "decoder_layers": 8},
        folds={"model.encoder.layers": [(0, 1, 8)], "model.decoder.layers": [(0, 1, 8)]},
    ),
    "gpt2": Deep(model="openai-community/gpt2", folds={"transformer.h": [(0, 1, 12)]}),
    "falcon": Deep(model="tiiuae/falcon-7b", changes={"num_hidden_layers": 8}, folds={"transformer.h": [(0, 1, 8)]}),
    "qwen2-vl": Deep(
        model="Qwen/Qwen2-VL-2B-Instruct",
        changes={"num_hidden_layers": 8, "vision_config.depth": 9},
        folds={"model.visual.blocks": [(0, 1, 9)], "model.language_model.layers": [(0, 1, 8)]},
        seq_len=300,
    ),
    "llava": Deep(
        model="llava-hf/llava-1.5-7b-hf",
        changes={"text_config.num_hidden_layers": 8},
        folds={"model.vision_tower.encoder.layers": [(0, 1, 23)], "model.language_model.layers": [(0, 1, 8)]},
        seq_len=600,
    ),
    "llama-4": Deep(
        model="meta-llama/Llama-4-Scout-17B-16E-Instruct",
        changes={
            "text_config.num_hidden_layers": 20,
            "text_config.layer_types": None,
            "text_config.no_rope_layers": None,
            "vision_config.num_hidden_layers": 8,
        },
        folds={"vision_model.model.layers": [(0, 1, 8)], "language_model.model.layers": [(0, 4, 6)]},
        seq_len=600,
    ),
    "bloom": Deep(model="bigscience/bloom-1b1", changes={"n_layer": 8}, folds={"transformer.h": [(0, 1, 8)]}),
}

VARIANTS = {
    "bf16": (BF16, Checkpointing.NONE),
    "bf16, checkpointed": (BF16, Checkpointing.FULL),
    "autocast": (AUTOCAST, Checkpointing.NONE),
    "autocast, checkpointed": (AUTOCAST, Checkpointing.FULL),
}
SAMPLE = [
    ("llama", "autocast"),
    ("gemma-2", "bf16, checkpointed"),
    ("t5", "bf16"),
    ("bart", "autocast"),
    ("deepseek-v3", "bf16"),
]


def _batch(model: nn.Module, micro_batch: int, seq_len: int) -> TrainingBatch:
    return training_batch(model, batch=micro_batch, seq_len=seq_len)


def _traced(model: nn.Module, deep: Deep, variant: str, micro_batch: int, *, fold: bool) -> tuple[Tracer, StepTrace]:
    regime, checkpointing = VARIANTS[variant]
    tracer = Tracer(model=model, make_batch=_batch, profile=CudaProfile(), has_sequence=has_sequence(model), fold=fold)
    step = StepVariant(
        regime=regime,
        checkpointing=checkpointing,
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
        seq_len=deep.seq_len,
    )
    return tracer, tracer.trace(step, micro_batch)


def _check(name: str, variant: str, micro_batch: int) -> None:
    deep = MODELS[name]
    model = build_model(deep.config())
    tracer, folded = _traced(model, deep, variant, micro_batch, fold=True)
    found: dict[str, list[tuple[int, int, int]]] = {}
    for fold in tracer.folds():
        found.setdefault(fold.list_name, []).append((fold.start, fold.period, fold.units))
    assert (found, tracer.notes) == (deep.folds, [])
    _, full = _traced(model, deep, variant, micro_batch, fold=False)
    assert_same_trace(folded, full)


@pytest.mark.parametrize(("name", "variant"), sample(SAMPLE, kept=[("llama", "autocast"), ("t5", "bf16")]))
def test_folded_equals_full(name: str, variant: str) -> None:
    _check(name, variant, 1)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["autocast", "bf16, checkpointed"])
@pytest.mark.parametrize("name", MODELS)
def test_folded_equals_full_over_a_range_of_micro_batches(name: str, variant: str) -> None:
    _check(name, variant, 2)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["bf16", "autocast, checkpointed"])
@pytest.mark.parametrize("name", MODELS)
def test_folded_equals_full_for_a_single_sample(name: str, variant: str) -> None:
    _check(name, variant, 1)
