"""Checkpoints with random weights, plans for them, and runs of prompts, for tests and benchmarks of inference."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_plan.planner.hardware.cluster import cluster_document, parse_cluster
from gpu_plan.planner.plan.document import Candidate, DevicePlacement, ModelFacts, Placement, StrategyChoice
from gpu_plan.planner.plan.files import save
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.units import GIB
from gpu_plan.planner.workload.generation import InferWorkload, WeightType

TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 64,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": 0,
}


def make_checkpoint(folder: Path, *, shard: str = "200KB", kind: str = "llama", **sizes: object) -> Path:
    """Saves a model of random weights, the same for the same sizes, as safetensors."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(7)
    config = AutoConfig.for_model(kind, **{**TINY, **sizes})
    # The default, 0.02, makes logits so small that random models repeat one token.
    config.initializer_range = 0.2
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder, max_shard_size=shard)
    return folder


def infer_plan(
    model: Path,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    replicas: int = 1,
    batch: int = 2,
    new_tokens: int = 6,
    context: int = 64,
    device_map: Mapping[str, str] | None = None,
    **workload: object,
) -> SavedPlan:
    """A plan of `--task infer` without figures, as `--save` writes it, for as many CPU processes as it takes."""
    from gpu_plan.planner.plan.saved import SavedPlan

    ranks = tensor * pipeline * replicas
    cluster = parse_cluster("cpu" if ranks == 1 else f"{ranks}xcpu", ram_bytes=16 * GIB)
    job = InferWorkload(
        context=context, batch=batch * replicas, new_tokens=new_tokens, precision=WeightType("fp32"), **workload
    )
    name = "tensor" if tensor > 1 else "pipeline" if pipeline > 1 else "replicas" if replicas > 1 else "single"
    places = tuple(
        DevicePlacement(device=device, weight_bytes=0)
        for device in sorted(set((device_map or {"": "cuda:0"}).values()))
    )
    return SavedPlan(
        command="plan MODEL --task infer --gpus cpu",
        created_with=_versions(),
        model=ModelFacts(
            id=str(model),
            class_name="LlamaForCausalLM",
            model_type="llama",
            kind="dense",
            parameters=_parameters(model),
            trainable_parameters=0,
            config_digest=_digest(model),
            source="folder",
        ),
        cluster=cluster_document(cluster),
        workload=_document(job),
        plan=Candidate(
            strategy=StrategyChoice(
                name=name,
                data_parallel=replicas,
                tensor_parallel=tensor,
                pipeline_parallel=pipeline,
                micro_batch_size=batch,
                precision="fp32",
            ),
            verdict="tight",
            placement=Placement(device_map=device_map or {"": "cuda:0"}, devices=places),
        ),
    )


def _document(job: InferWorkload) -> dict[str, object]:
    from dataclasses import fields

    values = {entry.name: getattr(job, entry.name) for entry in fields(job) if entry.name != "basis"}
    values["settings"] = dict(job.settings)
    return {**values, "basis": dict.fromkeys(values, "given")}


def _versions() -> dict[str, str]:
    from gpu_plan.planner.cache_dir import versions

    return dict(versions())


def _digest(model: Path) -> str:
    from gpu_plan.planner.model.source.resolve import resolve

    return resolve(str(model), read_headers=False).digest


def _parameters(model: Path) -> int:
    from gpu_plan.planner.model.source.folder_headers import read_folder

    stored, _ = read_folder(model)
    assert stored is not None
    return stored.parameters


def write_plan(folder: Path, plan: SavedPlan) -> Path:
    path = folder / "plan.json"
    save(plan, path, force=True)
    return path


def write_prompts(folder: Path, count: int = 7, *, vocab: int = 250, most: int = 12) -> Path:
    """Prompts of different lengths as tokens; the same for the same numbers."""
    import random

    chance = random.Random(3)
    lines = [
        {"input_ids": [chance.randrange(1, vocab) for _ in range(chance.randrange(2, most))], "id": f"p{number}"}
        for number in range(count)
    ]
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def execute(
    folder: Path, plan: Path, *words: str, options: Sequence[str] = (), script: str = "@generate", seconds: float = 1500
) -> subprocess.CompletedProcess[str]:
    """`plan --plan PLAN --execute @generate OPTIONS -- WORDS` in `folder`."""
    command = [str(Path(sys.executable).with_name("plan")), "--plan", str(plan), "--execute", script]
    return subprocess.run(
        [*command, *options, "--", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )


def results(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
