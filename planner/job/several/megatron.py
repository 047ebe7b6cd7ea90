"""What a job document may say of Megatron's workers: degrees, and which models they run."""

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.options.degrees.megatron import runs_own_model
from gpu_plan.planner.options.several.given import Does, Head, JobGiven, ModelGiven
from gpu_plan.planner.options.several.models import DEGREE_WORDS

_ALONE = {"tp": "1", "pp": "1", "cp": "1", "ep": "1"}
"""Ranks that share one model hold parts of it, and nothing is known of the others' parts."""
_UNASKED = {"cp": "1", "ep": "1", "vpp": "1"}
"""Of Megatron's workers, where a document says none; tensor parallel and stages are searched."""
STAGED = (
    "Megatron's workers are verl's: passes without gradients are the pipeline's schedule forward only, in evaluation"
    " mode, the trained model's with entropies; the last stage's log-probabilities of more micro batches than stages"
    " and two, 4 to 8 bytes a token, are left out; weights go to an engine through mbridge's buffers of 2 GiB"
)


def own_degrees(model: ModelGiven) -> dict[str, str]:
    """Words of the command line for a model's degrees."""
    if not runs_own_model(model.word("strategy")):
        return dict(_ALONE)
    said = dict(model.words)
    return {**_UNASKED, **{word: said[word] for word in DEGREE_WORDS.values() if word in said}}


def check_megatron(job: JobGiven, where: str) -> None:
    """InputError for what Megatron's workers do not run, or this version does not plan of them."""
    anchor = job.anchor
    whole = runs_own_model(anchor.word("strategy"))
    for model in job.models:
        place = f"{where}: models.{model.role}"
        said = next((key for key, word in DEGREE_WORDS.items() if word in dict(model.words)), None)
        if not runs_own_model(model.word("strategy")):
            if said is not None or model.megatron:
                raise InputError(f'{place}: {said or "settings"} is about strategy = "megatron": leave it out')
            if whole and model.trains:
                raise InputError(
                    f"{place}: beside Megatron's workers another trained model is theirs too: write its strategy"
                )
            continue
        if not whole:
            raise InputError(f"{place}: Megatron's workers run it only where they run {anchor.role} too")
        _check_one(job, model, place)


def _check_one(job: JobGiven, model: ModelGiven, place: str) -> None:
    anchor = job.anchor
    critic = model.head is Head.VALUE and model.trains and model is not anchor
    if model.head is not Head.OWN and not critic:
        raise InputError(
            f"{place}: head = '{model.head}' under Megatron's workers is a critic's alone in this version, which is"
            " trained beside another model"
        )
    if own_degrees(model) != own_degrees(anchor):
        raise InputError(f"{place}: Megatron's workers give all their models the same degrees: write {anchor.role}'s")
    if model.loss is not None:
        raise InputError(f'{place}: their losses are settings: write settings = ["megatron.cross_entropy=verl"]')
    for phase in job.phases:
        if model.role not in phase.roles or phase.does is Does.TRAIN:
            continue
        if phase.does is Does.GENERATE:
            raise InputError(f"{place}: Megatron's workers generate with an engine: name a model with engine for it")
        if own_degrees(model)["vpp"] != "1":
            raise InputError(
                f"{place}: {phase.name}: passes forward only of virtual stages are not in this version: leave"
                " virtual_stages out"
            )
