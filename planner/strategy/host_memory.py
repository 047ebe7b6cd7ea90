"""RAM of the node that holds rank 0: while the model is loaded, during steps, and while it is saved.

What was read in the installed sources:

- transformers 5.23 modeling_utils.py: `_load_pretrained_model` maps safetensors files into memory, and
  core_model_loading.py: `_materialize_copy` casts tensor by tensor. What is loaded in its stored dtype stays a mapped
  page of the file, which all ranks of a node share and the kernel may drop at any time: it is not counted. What is
  cast is private, on every rank: FSDP_CPU_RAM_EFFICIENT_LOADING marks other ranks' weights as initialized
  (`_initialize_missing_keys`) after all ranks have loaded them.
- accelerate 1.15 utils/fsdp_utils.py: `fsdp2_prepare_model` upcasts trainable parameters to fp32 where they are, in
  RAM, on every rank, before anything is sharded.
- transformers integrations/deepspeed.py: `_load_state_dict_into_zero3_model` partitions parameter by parameter, from
  mapped files, on rank 0 alone.
- safetensors torch.py: `_to_ndarray` keeps every tensor's copy until the whole file is written; torch's own pickles
  copy one storage at a time; torch/distributed/checkpoint/filesystem.py copies 10 MB ahead.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.base import MASTER, nbytes
from gpu_plan.planner.strategy.traits import Host
from gpu_plan.planner.trace.events import ParameterInfo, StepTrace, numberless
from gpu_plan.planner.trace.remembered import of_trace
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.training import Peft

_COPY_AHEAD = 10_000_000
"""torch/distributed/checkpoint/filesystem.py: FileSystemWriter(per_thread_copy_ahead)."""
_LOAD = "transformers modeling_utils.py: _load_pretrained_model; accelerate fsdp_utils.py: fsdp2_prepare_model"
_ZERO_INIT = "transformers integrations/deepspeed.py: _load_state_dict_into_zero3_model"
_SLICES = "transformers distributed/sharding_utils.py: DtensorShardOperation, a rank's slice of one tensor at a time"
_ON_DEVICE = "transformers quantizers/quantizer_bnb_4bit.py: update_device_map"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostJob:
    """What one configuration's RAM depends on."""

    host: Host
    """Of the strategy."""
    parameters: Sequence[ParameterInfo]
    counts: Sequence[int] = ()
    """How many there are of each of them; none: one."""
    regime: Regime
    mixed: bool
    """Whether fp32 weights stand behind 16-bit computation."""
    peft: Peft
    ranks: int
    """Of one node."""
    shards: int
    """Ranks that one copy of the model is sharded over."""
    stored: frozenset[str] | None
    """dtypes in the checkpoint; None where it was not read."""
    device_bytes: int | None = None
    """What one device holds; None where it is no matter."""
    step_bytes: int
    """RAM of one rank between and during steps: what is offloaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWeights:
    """What of a job neither the ranks that share the model nor what they offload change."""

    load: Term
    whole: int
    """Bytes of the weights as they are saved."""
    trained: int
    """Of those that are trained."""
    largest: int
    """Of the largest one."""


@of_trace
def parameter_kinds(trace: StepTrace) -> tuple[list[ParameterInfo], list[int]]:
    """One of each kind of a model's parameters, tied ones once, and how many there are of it: those of repeated blocks
    are loaded and saved alike."""
    counts: Counter[tuple[object, ...]] = Counter()
    first: dict[tuple[object, ...], ParameterInfo] = {}
    for one in trace.parameters:
        if not one.tied_to:
            kind = (numberless(one.name), one.shape, one.dtype, one.trainable)
            first.setdefault(kind, one)
            counts[kind] += 1
    return list(first.values()), [counts[kind] for kind in first]


def _counted(job: HostJob) -> list[tuple[ParameterInfo, int]]:
    return list(zip(job.parameters, job.counts or [1] * len(job.parameters), strict=True))


def host_weights(job: HostJob) -> HostWeights:
    """Asks every kind of parameter, once for many jobs."""
    sizes = [(_saved(job, one), count, one.trainable) for one, count in _counted(job)]
    return HostWeights(
        load=load_term(job),
        whole=sum(size * count for size, count, _ in sizes),
        trained=sum(size * count for size, count, trainable in sizes if trainable),
        largest=max((size for size, _, _ in sizes), default=0),
    )


def host_terms(job: HostJob, known: HostWeights | None = None) -> tuple[Term, Term, Term]:
    """Bytes on the node of rank 0, by moment: `load`, `step`, `save`; `known` from `host_weights`, if asked before."""
    known = known or host_weights(job)
    return known.load, _step(job), _save(job, known)


def shortage(terms: Sequence[Term], available: int) -> Term | None:
    """The first moment at which a node surely needs more RAM than it has: the low ends decide.

    What is offloaded stays while weights are saved.
    """
    return next((term for term in _at_moments(terms) if term.low > available), None)


def certain(terms: Sequence[Term]) -> int:
    """RAM that a node certainly needs at the worst of its moments."""
    return max((term.low for term in _at_moments(terms)), default=0)


def _at_moments(terms: Sequence[Term]) -> list[Term]:
    """What is there at each moment, steps first."""
    held = sum(term.low for term in terms if term.name == "step")
    ordered = sorted(terms, key=lambda term: term.name != "step")
    return [_from(term, term.low + held) if term.name == "save" else term for term in ordered]


def _from(term: Term, low: int) -> Term:
    """The same term from `low` on."""
    return replace(term, low=low, expected=max(term.expected, low), high=max(term.high, low))


def load_term(job: HostJob) -> Term:
    """Private RAM of all ranks of a node once the weights are read; the low end is what is certain."""
    if job.peft.quantises:
        return _loaded_packed(job)
    bounds = [(_loaded(job, parameter), count) for parameter, count in _counted(job)]
    low, expected, high = (job.ranks * sum(bound[end] * count for bound, count in bounds) for end in range(3))
    if job.host.loads == "slices":
        largest = job.ranks * max((nbytes(parameter.numel, MASTER) for parameter in job.parameters), default=0)
        return Term(name="load", low=0, expected=0, high=largest, basis="source", source=_SLICES)
    if job.host.loads == "partitioned":
        # A script that loads before it makes its Accelerator has no zero.Init around the model.
        return Term(name="load", low=0, expected=0, high=high, basis="source", source=_ZERO_INIT)
    basis = "source" if low == high else "assumed"
    return Term(name="load", low=low, expected=expected, high=high, basis=basis, source=_LOAD)


def _loaded_packed(job: HostJob) -> Term:
    """bitsandbytes packs on the rank's device unless a device map names the CPU: then every rank has it whole in RAM.

    Where the packed whole is more than a device holds, only the latter way is open.
    """
    sizes = ((nbytes(one.numel, job.regime.of(one)), count) for one, count in _counted(job))
    whole = job.ranks * sum(size * count for size, count in sizes)
    if job.host.saves != "shards":  # nothing but FSDP has a device hold less than it was loaded with
        return Term(name="load", low=0, expected=0, high=0, basis="source", source=_ON_DEVICE)
    least = whole if job.device_bytes is not None and whole > job.ranks * job.device_bytes else 0
    source = f"{_ON_DEVICE}; with device_map='cpu' on every rank"
    return Term(name="load", low=least, expected=least, high=whole, basis="source", source=source)


def packed_bytes(parameters: Sequence[ParameterInfo], regime: Regime) -> int:
    """Of a whole model as it is loaded, packed weights as they are."""
    return sum(nbytes(parameter.numel, regime.of(parameter)) for parameter in parameters)


def _loaded(job: HostJob, parameter: ParameterInfo) -> tuple[int, int, int]:
    """Low, expected and high private bytes of one parameter on one rank."""
    dtype = _dtype_in_ram(job, parameter)
    if dtype is None:
        # Loaded as stored by default (`dtype="auto"`), in fp32 at worst.
        return 0, 0, nbytes(parameter.numel, MASTER)
    size = nbytes(parameter.numel, dtype)
    if job.peft.adapts and parameter.trainable:
        return size, size, size
    if job.stored is None:
        return 0, size if dtype == MASTER else 0, size
    if dtype not in job.stored:
        return size, size, size
    return (0, 0, 0) if len(job.stored) == 1 else (0, 0, size)


def _dtype_in_ram(job: HostJob, parameter: ParameterInfo) -> str | None:
    """dtype before a parameter goes to a device; None where the plan does not say in which it is loaded."""
    if job.host.loads == "as computed" or not job.mixed:
        return job.regime.of(parameter)
    if job.host.loads == "upcast" and parameter.trainable:
        return MASTER
    return None


def _step(job: HostJob) -> Term:
    size = job.ranks * job.step_bytes
    return Term(name="step", low=size, expected=size, high=size, basis="source", source="the strategy's offload")


def _save(job: HostJob, known: HostWeights) -> Term:
    """From the checkpoint that the launch files ask for up to an export of the whole weights."""
    whole, saves = known.whole, job.host.saves
    if saves == "shards":
        low = job.ranks * (_COPY_AHEAD + known.largest // job.shards)
        source = "torch checkpoint/filesystem.py: FileSystemWriter; accelerate accelerator.py: get_state_dict"
    elif saves == "every rank":
        low, whole = 0, job.ranks * whole
        source = "deepspeed checkpoint/utils.py: clone_tensors_for_torch_save, on every rank"
    elif saves == "gathered":
        low = 0
        source = "deepspeed runtime/engine.py: _zero3_consolidated_16bit_state_dict, on rank 0"
    else:
        low = known.trained if job.peft.adapts else whole
        source = "safetensors torch.py: _to_ndarray, on rank 0"
    return Term(name="save", low=min(low, whole), expected=whole, high=whole, basis="source", source=source)


def _saved(job: HostJob, parameter: ParameterInfo) -> int:
    dtype = job.regime.of(parameter)
    if job.host.saves == "shards" and job.mixed and parameter.trainable:
        dtype = MASTER
    return nbytes(parameter.numel, dtype)
