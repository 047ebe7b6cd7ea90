"""The projects that code here may name: how they are written, and where their packages lie."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Project:
    """One project whose sources are mirrored."""

    name: str
    """Of the distribution where a wheel holds the source, else of the repository."""
    marks: str
    """Regular expression: how texts name it."""
    package: str = ""
    """Import name of the installed package; empty: no wheel holds the source, its version alone is held."""


PROJECTS = (
    Project("torch", r"\bpytorch\b|\btorch(?=[ /,]|\.(?!py))|\baten/|\bc10/", "torch"),
    Project("transformers", r"\btransformers\b|\bTrainer\b|\bHfArgumentParser\b|\bintegrations/", "transformers"),
    Project("accelerate", r"(?i:\baccelerate\b)", "accelerate"),
    Project("deepspeed", r"(?i:\bdeepspeed\b)|\bZeRO\b", "deepspeed"),
    Project("peft", r"\bpeft\b", "peft"),
    Project("trl", r"\btrl\b", "trl"),
    Project("bitsandbytes", r"\bbitsandbytes\b", "bitsandbytes"),
    Project("torchao", r"\btorchao\b", "torchao"),
    Project("safetensors", r"\bsafetensors\b", "safetensors"),
    Project("huggingface_hub", r"\bhuggingface_hub\b", "huggingface_hub"),
    Project("lightning", r"\blightning\b", "lightning"),
    Project("textual", r"\btextual\b", "textual"),
    Project("GPTQModel", r"\bGPTQModel\b|\bgptqmodel"),
    Project("AutoGPTQ", r"\bAutoGPTQ\b|\bauto_gptq\b"),
    Project("AutoAWQ", r"\bAutoAWQ\b|\bawq/"),
    Project("optimum", r"\boptimum\b"),
    Project("compressed-tensors", r"\bcompressed-tensors\b"),
    Project("llama.cpp", r"\bllama\.cpp\b|\bggml\.h\b"),
    Project("liger-kernel", r"\bliger[-_]kernel\b"),
    Project("mamba", r"\bstate-spaces/mamba\b|\bmamba_ssm\b"),
    Project("causal-conv1d", r"\bcausal-conv1d\b"),
    Project("flash-linear-attention", r"\bflash-linear-attention\b"),
    Project("flash-attention", r"\bDao-AILab/flash-attention\b"),
    Project("triton", r"\btriton-lang/triton\b"),
    Project("torchtitan", r"\btorchtitan\b|\bparallelize_llama\b"),
    Project("torchtune", r"\btorchtune\b"),
    Project("litgpt", r"\blitgpt\b"),
    Project("axolotl", r"\baxolotl\b"),
    Project("LLaMA-Factory", r"\bLLaMA-Factory\b"),
    Project("sglang", r"\bsglang(?= \d)"),
    Project("verl", r"\bverl\b"),
    Project("OpenRLHF", r"\bOpenRLHF\b|\bopenrlhf\b"),
    Project("open-instruct", r"\bopen_instruct\b|\bopen-instruct\b"),
    Project("TransformerEngine", r"\bTransformer Engine\b|\btransformer_engine/|\bTransformerEngine\b"),
    Project("cudnn-frontend", r"\bcudnn-frontend\b"),
    Project("unsloth", r"\bunsloth\b"),
    Project("linux", r"\binclude/uapi\b|\bkernel/|\bsys/timex"),
    Project("cpython", r"\bPython 3\.\d+ on\b"),
)
HOMES = {
    "planner/model/kernels/transformer_engine.py": "TransformerEngine",
    "planner/model/quantization/layers/packed_int.py": "GPTQModel",
    "planner/model/quantization/layers/compressed.py": "compressed-tensors",
    "planner/model/quantization/compressed.py": "compressed-tensors",
    "planner/from_config/formats/trainers/axolotl.py": "axolotl",
    "planner/from_config/formats/trainers/llamafactory.py": "LLaMA-Factory",
    "planner/from_config/formats/loops/llamafactory_v1.py": "LLaMA-Factory",
    "planner/model/kernels/liger.py": "liger-kernel",
    "planner/trace/kernels/liger/kernels.py": "liger-kernel",
    "planner/trace/kernels/liger/loss.py": "liger-kernel",
    "planner/trace/kernels/liger/replace.py": "liger-kernel",
    "planner/trace/kernels/attention.py": "torch",
}
"""Modules that mirror one project throughout: what is found in no installed package is that project's."""
BY_NAME = {project.name: project for project in PROJECTS}
_MARKS = [(re.compile(project.marks), project) for project in PROJECTS]


def named_last(text: str) -> Project | None:
    """The project that `text` names last."""
    ends = [(match.end(), project) for mark, project in _MARKS for match in mark.finditer(text)]
    return max(ends, key=lambda end: end[0])[1] if ends else None


def version_in(text: str, project: Project) -> str:
    """The version or commit that `text` gives `project`, such as `liger-kernel 0.8.5`; empty where it gives none."""
    found = re.search(rf"(?:{project.marks})(?: |@|==?|\s*\()+v?(\d+(?:\.\w+)+|[0-9a-f]{{7,40}})\b", text)
    return found[1] if found else ""
