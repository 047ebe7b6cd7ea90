"""What `--set` changes about a training step, told beside the figures."""

from gpu_plan.planner.plan.document import Assumption
from gpu_plan.planner.search.training.compilation import compilation_note
from gpu_plan.planner.workload.training import Workload


def training_notes(workload: Workload) -> tuple[Assumption, ...]:
    """Assumptions that follow from settings of float8 layers, evaluation and compilation."""
    notes = []
    if workload.setting("fp8.backend", "torchao") == "te":
        text = (
            "fp8.backend=te: the layers of Transformer Engine 2.9 as its source has them, under accelerate's default"
            " recipe; partial sums of its layer norms' and biases' gradients are counted at one size, though the"
            " library chooses among several (some MiB for an instant)"
        )
        notes.append(Assumption(text=text, basis="source"))
    if "eval.batch" in dict(workload.settings):
        cache = "no key-value cache" if workload.stack.traits.is_trainer else "the key-value cache of its outputs"
        text = f"evaluation: forward without gradients, {cache}; not compiled, even where steps are"
        notes.append(Assumption(text=text, basis="source"))
    if "compile.backend" in dict(workload.settings):
        notes.append(compilation_note(workload))
    return tuple(notes)
