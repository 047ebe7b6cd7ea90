"""What `--save` keeps: the chosen plan with all that it was made for, and a digest of those inputs."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.plan.codec import canonical, decode, dump, load_object
from gpu_plan.planner.plan.document import (
    SCHEMA_VERSION,
    Assumption,
    Candidate,
    ModelFacts,
    PlanDocument,
    check_version,
    settle_sections,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """One chosen candidate, to be executed later or elsewhere."""

    schema_version: int = SCHEMA_VERSION
    document: Literal["saved-plan"] = "saved-plan"
    command: str
    """The command line that made it."""
    created_with: Mapping[str, str]
    """Versions by package name."""
    model: ModelFacts
    cluster: Mapping[str, object]
    workload: Mapping[str, object]
    plan: Candidate
    assumptions: tuple[Assumption, ...] = ()
    warnings: tuple[str, ...] = ()
    digest: str = field(init=False)
    """Of the inputs: model config, cluster, workload, versions."""

    def __post_init__(self) -> None:
        settle_sections(self)
        digest = input_digest(self.model, self.cluster, self.workload, self.created_with)
        object.__setattr__(self, "digest", digest)

    @property
    def called_parameters(self) -> int:
        """Parameters of the models that a training step calls: a script's frozen reference is called under no_grad."""
        return _of_script(self, "called_parameters") or self.model.parameters

    @property
    def starts_ranks(self) -> bool:
        """Whether the captured script starts a process for each rank by itself."""
        return bool(_of_script(self, "starts_ranks"))

    @property
    def rows_of_a_call(self) -> int:
        """Rows that a training loop gives its model in one call: a pair of a script's loader is one sample of two."""
        rows, samples = _of_script(self, "rows"), _of_script(self, "micro_batch")
        planned = self.plan.strategy.loop_batch_size
        return planned * rows // samples if rows and samples else planned


def _of_script(saved: SavedPlan, name: str) -> int | None:
    """What the captured script does by itself; None where the plan is of none, or is older."""
    captured = saved.workload.get("script")
    value = captured.get(name) if isinstance(captured, Mapping) else None
    return value if isinstance(value, int) and value > 0 else None


def saved_plan(document: PlanDocument, candidate: Candidate | None = None) -> SavedPlan:
    """`candidate` of `document`, its best plan when None, ready to be saved. ValueError where there is none."""
    chosen = candidate or document.best
    if chosen is None:
        raise ValueError("nothing fits: there is no plan to save")
    return SavedPlan(
        command=document.command,
        created_with=document.created_with,
        model=document.model,
        cluster=document.cluster,
        workload=document.workload,
        plan=chosen,
        assumptions=document.assumptions,
        warnings=document.warnings,
    )


def input_digest(
    model: ModelFacts,
    cluster: Mapping[str, object],
    workload: Mapping[str, object],
    versions: Mapping[str, str],
) -> str:
    """`sha256:...` of what a plan was made from; where each value came from does not count."""
    whole = canonical(_inputs(model, cluster, workload, versions))
    return "sha256:" + hashlib.sha256(whole).hexdigest()


def stale_reasons(
    saved: SavedPlan,
    *,
    model: ModelFacts | None = None,
    cluster: Mapping[str, object] | None = None,
    workload: Mapping[str, object] | None = None,
    versions: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """What has changed since `saved` was made, one line each; empty where it still holds. None: not compared."""
    then = _inputs(saved.model, saved.cluster, saved.workload, saved.created_with)
    now = _inputs(
        model or saved.model,
        saved.cluster if cluster is None else cluster,
        saved.workload if workload is None else workload,
        saved.created_with if versions is None else versions,
    )
    reasons = []
    for section, before in then.items():
        after = now[section]
        for key in sorted({*before, *after}):
            if canonical(before.get(key)) != canonical(after.get(key)):
                reasons.append(f"{section} {key} was {_short(before.get(key))}, is {_short(after.get(key))}")
    return tuple(reasons)


def _inputs(
    model: ModelFacts,
    cluster: Mapping[str, object],
    workload: Mapping[str, object],
    versions: Mapping[str, str],
) -> dict[str, dict[str, object]]:
    return {
        "model": {"config": model.config_digest, "trainable parameters": model.trainable_parameters},
        "cluster": dict(cluster),
        "workload": {key: value for key, value in workload.items() if key != "basis"},
        "version of": dict(versions),
    }


def _short(value: object) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def saved_to_json(plan: SavedPlan) -> str:
    """JSON, the same bytes for the same plan, without a final newline."""
    return dump(plan)


def saved_from_json(text: str | bytes, where: str) -> SavedPlan:
    """The saved plan in `text`. InputError in one line for anything that `saved_to_json` could not write."""
    value = load_object(text, where)
    check_version(value, where, "saved plan")
    if value.get("document") != "saved-plan":
        raise InputError(
            f"{where} is not a saved plan: `--save FILE` writes one, `--json` prints a whole document instead"
        )
    if "digest" not in value:
        raise InputError(f"{where} has no digest of what it was made from: make the plan again")
    return decode(SavedPlan, value, where)
