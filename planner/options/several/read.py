"""A job document whole: its models, its phases, and what they mean together."""

from collections.abc import Mapping, Sequence

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.options.recipe.read import DEFAULT_LEN
from gpu_plan.planner.options.several.given import CutByTokens, Does, JobGiven, ModelGiven, PhaseGiven
from gpu_plan.planner.options.several.models import read_model
from gpu_plan.planner.options.several.tables import Part, shown

_USUAL = ("usual_prompt_len", "usual_completion_len")
_KEYS = ("name", "prompt_len", "completion_len", "padding_removed", *_USUAL, "expandable_segments", "models", "phases")
_CUT = ("max_tokens", "samples")
_PHASE_KEYS = ("name", "does", "models", "micro_batch", *_CUT, "prompt_len", "completion_len", "every")
MOST_MODELS, _MOST_PHASES = 8, 32


def read_job(table: Mapping[str, object], where: str) -> JobGiven:
    """What a document says; InputError in one line for what makes no sense."""
    whole = Part(table, where, _KEYS)
    models = _models(table.get("models"), where)
    lengths = (whole.count("prompt_len") or DEFAULT_LEN, whole.count("completion_len") or DEFAULT_LEN)
    phases = _phases(table.get("phases"), where, models, lengths)
    for model in models:
        _check_used(model, phases, where)
    # The first that is trained is the one that is searched.
    first = next((model for model in models if model.trains), None)
    if first is None:
        raise InputError(f"{where}: no model is trained: set train = true of one (--task infer plans a generation)")
    ordered = (first, *(model for model in models if model is not first))
    return JobGiven(
        name=whole.text("name") or "job",
        models=ordered,
        phases=phases,
        lengths=lengths,
        padding_removed=whole.flag("padding_removed"),
        usual=_usual(whole, lengths),
        expands=whole.flag("expandable_segments"),
    )


def _usual(whole: Part, lengths: tuple[int, int]) -> tuple[int, int] | None:
    """Lengths of an average sample, as far as they are said."""
    said = tuple(whole.count(key) for key in _USUAL)
    if said == (None, None):
        return None
    if not whole.flag("padding_removed"):
        raise InputError(
            f"{whole.where}: {_USUAL[0]} and {_USUAL[1]} are about passes without padding: add padding_removed = true"
        )
    for key, own, most in zip(_USUAL, said, lengths, strict=True):
        if own is not None and own > most:
            raise InputError(f"{whole.where}: {key} = {own} is more than the {most} tokens of the longest sample")
    return said[0] or lengths[0], said[1] or lengths[1]


def _models(table: object, where: str) -> tuple[ModelGiven, ...]:
    if not isinstance(table, Mapping) or not table:
        raise InputError(f"{where} names no models: add a table [models.policy] with model and train")
    if len(table) > MOST_MODELS:
        raise InputError(f"{where} names {len(table)} models: a job has {MOST_MODELS} at most")
    found = []
    for role, own in table.items():
        if not isinstance(role, str) or not role.strip() or not role.isprintable() or len(role) > 40:
            raise InputError(f"{where}: {shown(role)} is no name of a model: write a word, such as policy")
        found.append(read_model(role, own, where))
    engines = [model.role for model in found if model.engine is not None]
    if len(engines) > 1:
        raise InputError(f"{where}: {engines[0]} and {engines[1]} are both engines: a job has one")
    return tuple(found)


def _phases(
    tables: object, where: str, models: Sequence[ModelGiven], lengths: tuple[int, int]
) -> tuple[PhaseGiven, ...]:
    if not isinstance(tables, list) or not tables:
        raise InputError(f"{where} names no phases: add a table [[phases]] with name, does and models for each")
    if len(tables) > _MOST_PHASES:
        raise InputError(f"{where} names {len(tables)} phases: a job has {_MOST_PHASES} at most")
    found: list[PhaseGiven] = []
    for number, table in enumerate(tables, start=1):
        phase = _phase(table, f"{where}: phase {number}", models, lengths)
        if phase.name in [other.name for other in found]:
            raise InputError(f"{where}: two phases are called {shown(phase.name)}: give each a name of its own")
        found.append(phase)
    return tuple(found)


def _phase(table: object, where: str, models: Sequence[ModelGiven], lengths: tuple[int, int]) -> PhaseGiven:
    part = Part(table, where, _PHASE_KEYS)
    name, does = part.text("name"), part.one_of("does", Does)
    roles, known = part.names("models"), [model.role for model in models]
    for role in roles:
        if role not in known:
            raise InputError(
                f"{where}: {shown(role)} is no model of the job: {', '.join(known)}.{did_you_mean(role, known)}"
            )
    for model in models:
        if model.role in roles:
            _check_able(model, does, where)
    if does is Does.GENERATE and len(roles) > 1:
        raise InputError(f"{where}: {' and '.join(roles)} cannot generate at once: write a phase for each")
    found = PhaseGiven(
        name=name or str(does),
        does=does,
        roles=roles,
        micro_batch=part.count("micro_batch"),
        prompt_len=part.count("prompt_len") or lengths[0],
        completion_len=part.count("completion_len") or lengths[1],
        every=part.count("every") or 1,
        cut=_cut(part),
    )
    return found.shortened(found.prompt_len, found.completion_len)


def _cut(part: Part) -> CutByTokens | None:
    """Samples that are cut by their tokens; InputError where one of the two is missing, or micro_batch says it too."""
    most, samples = (part.count(key) for key in _CUT)
    if most is None and samples is None:
        return None
    if most is None or samples is None:
        raise InputError(f"{part.where}: max_tokens of a pass and samples that are cut by it go together: write both")
    if "micro_batch" in part:
        raise InputError(f"{part.where}: max_tokens and micro_batch both say how much a pass takes: leave one out")
    return CutByTokens(max_tokens=most, samples=samples)


def _check_able(model: ModelGiven, does: Does, where: str) -> None:
    """InputError for what a model cannot do."""
    if model.engine is not None and does not in (Does.GENERATE, Does.SYNC):
        raise InputError(f"{where}: {model.role} is an engine, which does generate and sync, not {does}")
    if model.engine is None and does is Does.SYNC:
        raise InputError(f'{where}: sync writes weights into an engine, and {model.role} has none: add engine = "vllm"')
    if does is Does.TRAIN and not model.trains:
        raise InputError(f"{where}: {model.role} is frozen: set its train = true, or let the phase do forward")
    if does is Does.GENERATE and not model.head.speaks:
        raise InputError(f"{where}: {model.role} has a {model.head} head, which generates nothing")


def _check_used(model: ModelGiven, phases: Sequence[PhaseGiven], where: str) -> None:
    own = [phase for phase in phases if model.role in phase.roles]
    if not own:
        raise InputError(f"{where}: {model.role} computes in no phase: name it in one, or leave it out")
    if model.trains and not any(phase.does is Does.TRAIN for phase in own):
        raise InputError(f"{where}: {model.role} is trained in no phase: add one that does train, or leave train out")
