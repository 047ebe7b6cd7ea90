"""Plans beside what the authors of large jobs ran and published: Megatron-core's, and those of transformers' own
classes where Megatron-core's GPTModel is none.

    .venv/bin/python -m benchmarks.told.megatron_plans

writes benchmarks/results/megatron_plans.md: each plan is made from the command line, as a user would.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.places import RESULTS
from gpu_plan.planner.model.catalog_index import load_index

PAGE = RESULTS / "megatron_plans.md"
_SECONDS = 900
_HEAD = """# Plans of Megatron-core beside what was run

Written by `python -m benchmarks.told.megatron_plans`; nothing is fitted. A plan takes the degrees of the published job;
throughput is in tokens a second and GPU. Models that GPTModel is not are planned as transformers' classes.

| job | planned with | memory of the fullest rank, GiB | verdict | planned | published | planned / published |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One job as its authors ran it."""

    name: str
    words: str
    tokens_per_gpu: float
    source: str
    why: str
    strategy: str = "--strategy megatron --pin"
    """How the search is held; empty where it is free."""


_ESM = "ESM-2-15B"
"""Stands for a folder with its configuration, which the catalog does not have."""
_ESM_SIZES = {"hidden_size": 5120, "intermediate_size": 20480, "num_attention_heads": 40, "num_hidden_layers": 48}
"""Beside the catalog's facebook/esm2_t33_650M_UR50D (facebookresearch/esm, README: esm2_t48_15B_UR50D)."""
_NEMOTRON = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 --gpus 2x4xGB200 --global-batch 512 --seq-len 8192"
_GEMMA = "google/gemma-4-26B-A4B --gpus 8xH100 --global-batch 32 --seq-len 4096"
_GEMMA_TOKENS = 32 * 4096 / 18.7 / 8

_LLAMA = (
    "meta-llama/Llama-3.1-405B --gpus 2048x8xH100 --tp 8 --pp 16 --global-batch 2048 --micro-batch 1 --seq-len 8192"
)
_LLAMA_TOKENS = 400e12 / (6 * 405.9e9 + 6 * 126 * 16384 * 8192)
_DEEPSEEK = (
    "deepseek-ai/DeepSeek-V3 --gpus 256x8xH800 --pp 16 --ep 64 --tp 1 --micro-batch 1 --global-batch 15360"
    " --set megatron.first_layers=3 --set megatron.last_layers=2"
)
_DEEPSEEK_TOKENS = 1e12 / (180e3 * 3600)
_QWEN = (
    "Qwen/Qwen3-235B-A22B --gpus 32x8xH100 --tp 4 --pp 8 --vpp 4 --ep 8 --micro-batch 1 --global-batch 2048"
    " --seq-len 4096"
)
_QWEN_TOKENS = 2048 * 4096 / 29.0 / 256
_ENDS_COUNT = "--set megatron.embedding_counts=true --set megatron.loss_counts=true"

JOBS = (
    Published(
        name="Llama-3.1-405B, 16,384 H100",
        words=f"{_LLAMA} --set megatron.first_layers=7 --set megatron.last_layers=7",
        tokens_per_gpu=_LLAMA_TOKENS,
        source="The Llama 3 Herd of Models, table 4: TP 8, PP 16, DP 128, 16M tokens a batch, bf16, 400 TFLOP/s a GPU"
        " (tokens by 6 P + 6 L h s FLOPs each)",
        why="16 micro batches through 16 stages under 1F1B leave ranks waiting for nearly half of the step, which"
        " Meta's virtual stages cut; and Meta's own engine frees and shares more of what is kept",
    ),
    Published(
        name="the same, 4 virtual stages",
        words=f"{_LLAMA} --vpp 4 {_ENDS_COUNT}",
        tokens_per_gpu=_LLAMA_TOKENS,
        source="as above",
        why="more micro batches are in flight than Megatron-core has room for",
    ),
    Published(
        name="the same, 4 virtual stages, full recomputation",
        words=f"{_LLAMA} --vpp 4 {_ENDS_COUNT} --checkpointing full",
        tokens_per_gpu=_LLAMA_TOKENS,
        source="as above",
        why="every layer is computed once more",
    ),
    Published(
        name="DeepSeek-V3, 2,048 H800",
        words=_DEEPSEEK,
        tokens_per_gpu=_DEEPSEEK_TOKENS,
        source="DeepSeek-V3 Technical Report: PP 16, EP 64 over 8 nodes, ZeRO-1, 180K H800 hours a trillion tokens",
        why="DeepSeek keeps activations in FP8, and recomputes norms and up-projections; with its prediction layer, as"
        " everywhere below",
    ),
    Published(
        name="the same, norms, up-projections and activations again",
        words=f"{_DEEPSEEK} --checkpointing selective"
        " --set megatron.recompute_modules=layernorm,mla_up_proj,moe_act,shared_experts",
        tokens_per_gpu=_DEEPSEEK_TOKENS,
        source="as above",
        why="what DeepSeek names as run again, in bf16: what is kept in FP8 there takes twice as much here",
    ),
    Published(
        name="the same in FP8",
        words=f"{_DEEPSEEK} --precision fp8-mixed --set megatron.fp8_recipe=tensorwise --checkpointing selective"
        " --set megatron.recompute_modules=layernorm,mla_up_proj,moe_act,shared_experts",
        tokens_per_gpu=_DEEPSEEK_TOKENS,
        source="as above",
        why="Transformer Engine scales whole tensors and holds weights and inputs in both orders on Hopper, where"
        " DeepSeek scales tiles; tokens are sent to their experts in bf16, and waited for",
    ),
    Published(
        name="the same, full recomputation",
        words=f"{_DEEPSEEK} --checkpointing full",
        tokens_per_gpu=_DEEPSEEK_TOKENS,
        source="as above",
        why="bf16 products where DeepSeek's are FP8, every layer computed once more, and tokens waited for where"
        " DualPipe sends them beside others",
    ),
    Published(
        name="Qwen3-235B-A22B, 256 H100",
        words=f"{_QWEN} {_ENDS_COUNT}",
        tokens_per_gpu=_QWEN_TOKENS,
        source="Megatron MoE ModelZoo: TP 4, PP 8, VPP 4, EP 8, bf16, DeepEP, 29.0 s a step (tq-moe-modelzoo-0333);"
        " recomputation not printed",
        why="what the job recomputed is not printed, nor how evenly experts were chosen; the same job under"
        " Megatron-FSDP took 17.6 s (tq-moe-modelzoo-0331)",
    ),
    Published(
        name="the same, full recomputation",
        words=f"{_QWEN} {_ENDS_COUNT} --checkpointing full",
        tokens_per_gpu=_QWEN_TOKENS,
        source="as above",
        why="as above",
    ),
    Published(
        name="ESM-2 of 15B, 512 V100",
        words=f"{_ESM} --gpus 64x8xV100-32GB --strategy fsdp --checkpointing full --micro-batch 6 --seq-len 1024 --pin",
        tokens_per_gpu=270e3 * 3.2e6 / (60 * 86400) / 512,
        source="Lin and others, Evolutionary-scale prediction of atomic-level protein structure: 60 days on 512 V100"
        " for 270,000 updates of 3.2M tokens, sharded data parallel (as remembered: the paper could not be read here)",
        why="samples are cropped and padded there, and all of 1,024 tokens here",
        strategy="",
    ),
    Published(
        name="Nemotron-3-Nano-30B-A3B (hybrid, experts), 8 GB200, searched",
        words=_NEMOTRON,
        tokens_per_gpu=34816,
        source="Megatron-Bridge, 26.06.01: EP 8, micro batch 2, no recomputation (tq-megatron-bridge-0028)",
        why="MXFP8 products, one grouped product for a rank's experts, HybridEP and CUDA graphs there; bf16 products of"
        " transformers' own class here",
        strategy="",
    ),
    Published(
        name="the same, EP 8",
        words=f"{_NEMOTRON} --ep 8",
        tokens_per_gpu=34816,
        source="as above",
        why="as above",
        strategy="",
    ),
    Published(
        name="Gemma 4 26B-A4B (vision-language), 8 H100, searched",
        words=_GEMMA,
        tokens_per_gpu=_GEMMA_TOKENS,
        source="Megatron-Bridge #5321: TP 4, EP 8, activations of experts run again, 32 samples in 18.7 s, 70.6 GiB"
        " (pm-megatron-bridge-skills-0136), its vision encoder frozen, told here as if samples had 4,096 tokens: their"
        " length is not printed",
        why="there ranks share out experts and layers, here ZeRO-3 with optimizer states on the host; nothing is frozen"
        " here, and the samples have no images",
        strategy="",
    ),
)


def main() -> None:
    """Writes the page."""
    rows, notes = [], []
    for job in JOBS:
        print(job.name, file=sys.stderr)
        plan = _planned(job)
        rows.append(_row(job, plan))
        notes.append(f"- {job.name}: {job.source}. Where it differs: {job.why}.")
    PAGE.write_text(_HEAD + "\n".join(rows) + "\n\n" + "\n".join(notes) + "\n", encoding="utf-8")


def _planned(job: Published) -> dict[str, Any]:
    """The first plan of the document that the command prints."""
    with TemporaryDirectory() as folder:
        words = [_esm(Path(folder)) if word == _ESM else word for word in job.words.split()]
        command = [str(Path(sys.executable).parent / "plan"), *words, *job.strategy.split(), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    document = json.loads(done.stdout)
    found: dict[str, Any] = (document["plans"] or document["rejected"])[0]
    return found


def _esm(folder: Path) -> str:
    """A folder with the configuration of ESM-2's largest."""
    small = json.loads(load_index()["facebook/esm2_t33_650M_UR50D"].path.read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**small, **_ESM_SIZES}), encoding="utf-8")
    return str(folder)


def _row(job: Published, plan: dict[str, Any]) -> str:
    memory, speed = plan["memory"], plan["speed"]
    used = memory["device_used_bytes"] / 2**30
    tokens = speed["tokens_per_second_per_gpu"] if speed else None
    shown = "not told" if tokens is None else f"{tokens:,.0f}"
    share = "" if tokens is None else f"{tokens / job.tokens_per_gpu:.2f}"
    options = " ".join(job.words.split()[1:])
    capacity = memory["capacity_bytes"] / 2**30
    return (
        f"| {job.name} | `{options}` | {used:.1f} of {capacity:.1f} | {plan['verdict']} | {shown} |"
        f" {job.tokens_per_gpu:,.0f} | {share} |"
    )


if __name__ == "__main__":
    main()
