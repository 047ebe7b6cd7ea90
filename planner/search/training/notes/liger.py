"""How a loop gets Liger's kernels: flags of transformers' Trainer, or one call in a script of one's own."""

import json

from gpu_plan.planner.model.kernels.liger import VERSION
from gpu_plan.planner.workload.training import Workload

_LAYERS = ("rope", "rms_norm", "swiglu", "geglu")


def liger_config(fused: tuple[str, ...]) -> dict[str, bool]:
    """What differs from the hook's defaults: TrainingArguments.liger_kernel_config, or keyword arguments."""
    config = {} if "layers" in fused else dict.fromkeys(_LAYERS, False)
    return config if "loss" in fused else {**config, "fused_linear_cross_entropy": False, "cross_entropy": False}


def liger_words(workload: Workload) -> list[str]:
    """Arguments of a script that hands them to TrainingArguments (transformers training_args.py)."""
    if not workload.fused:
        return []
    config = liger_config(workload.fused)
    return ["--use_liger_kernel", *(["--liger_kernel_config", json.dumps(config)] if config else [])]


def liger_notes(workload: Workload) -> tuple[str, ...]:
    """What a loop of one's own must call; what the figures rest on."""
    if not workload.fused:
        return ()
    source = f"Liger's kernels allocate as liger-kernel {VERSION} does (its Python, replayed without a GPU)"
    if workload.stack.traits.is_trainer:
        return (source,)
    words = "".join(f", {name}={value}" for name, value in liger_config(workload.fused).items())
    call = f"liger_kernel.transformers._apply_liger_kernel_to_instance(model=model{words})"
    return (source, f"Liger is switched on in the script, before the model is prepared: {call}")
