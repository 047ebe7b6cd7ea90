"""All that a screen needs to draw itself, as one value; and the words on it."""

from dataclasses import dataclass

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.plan.document import Candidate, PlanDocument
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.precisions import default_precision
from gpu_plan.reports.clean import ascii_line, one_line
from gpu_plan.reports.plan import words
from gpu_plan.tui.choices import FLAGS, TRAINING
from gpu_plan.tui.engine.messages import Picture
from gpu_plan.tui.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One moment of the explorer."""

    state: State
    picture: Picture | None = None
    current: bool = False
    """Whether the picture is of this state, and exact."""
    stale: bool = False
    """Whether the picture is of an earlier state, and will be for a while."""
    found: PlanDocument | None = None
    searching: bool = False
    busy: str = ""
    problem: str = ""
    notice: str = ""
    """What is wrong beside the picture; empty where nothing is."""
    ascii_only: bool = False
    letters: bool = False
    """Whether categories are told apart by letters, not by colours."""
    readonly: bool = False
    pinned: PlanDocument | None = None
    pointed: str = ""
    """Why the plan under the cursor lost; empty where it did not."""

    def safe(self, text: str) -> str:
        """`text` on one line, in the characters that the terminal has."""
        return ascii_line(text) if self.ascii_only else one_line(text)

    @property
    def document(self) -> PlanDocument | None:
        return None if self.picture is None else self.picture.document

    @property
    def candidate(self) -> Candidate | None:
        """The configuration in the picture."""
        return None if self.document is None else words.focus(self.document)

    def value(self, name: str) -> str:
        """What holds for an option in this state: given or tried, else what the picture was made with or will be."""
        return self.state.value(name) or shown_value(self, name) or known_default(self, name) or "-"

    def origin(self, name: str) -> str:
        """`given`, `tried`, `best`, `script` or `default`."""
        if name in self.state.menu.fixed:
            return "script"
        if name in dict(self.state.focus):
            given = dict(self.state.given).get(name) == dict(self.state.focus)[name]
            return "given" if given else "best" if self.state.following else "tried"
        return "given" if name in dict(self.state.given) else "default"


_WORKLOAD = {
    "seq-len": "seq_len", "precision": "precision", "optimizer": "optimizer", "attention": "attention", "peft": "peft",
    "lora-rank": "lora_rank", "stack": "stack", "global-batch": "global_batch", "context": "context", "batch": "batch",
    "new-tokens": "new_tokens", "quantize": "quantize", "kv-dtype": "kv_dtype",
}  # fmt: skip


def shown_value(scene: Scene, name: str) -> str | None:
    """What the document in view was made with; None where it does not say."""
    document, candidate = scene.document or scene.found, scene.candidate
    if name in scene.state.menu.searched:
        if candidate is None:
            return None
        choice = candidate.strategy
        values = {
            "strategy": choice.name,
            "offload": choice.offload,
            "checkpointing": choice.checkpointing,
            "micro-batch": str(choice.micro_batch_size),
            "grad-accum": str(choice.gradient_accumulation_steps),
            "tp": str(choice.tensor_parallel),
            "pp": str(choice.pipeline_parallel),
        }
        return values.get(name)
    if document is None:
        return None
    if name in FLAGS:
        return "true" if document.workload.get(name.replace("-", "_")) else "false"
    value = document.workload.get(_WORKLOAD.get(name, name))
    return None if value is None else str(value)


def known_default(scene: Scene, name: str) -> str | None:
    """Before anything is in view: what an option comes to that nobody gave and nothing searches; None where the model
    decides it."""
    menu = scene.state.menu
    if scene.document is not None or scene.found is not None or name in menu.searched:
        return None
    if name == "lora-rank" and scene.state.value("peft") in (None, NO_ADAPTERS):
        return None
    if name == "precision" and menu is TRAINING:
        return _default_precision(scene.state.gpus)
    return menu.choices[name].default or None


def _default_precision(gpus: str) -> str | None:
    try:
        return str(default_precision(parse_cluster(gpus).gpu.supports_bf16))
    except PlanError:
        return None
