"""What the planner and everything around it has to know of an optimizer, and the rules that an optimizer states.

Named tuples, because `plan --help` reads the names and must start at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor


class Kept(NamedTuple):
    """A tensor that an optimizer keeps for a parameter."""

    label: str
    nbytes: int
    managed: bool = False
    """Whether it lies in CUDA managed memory, which the allocator does not see and the driver moves to the host."""


class Scratch(Protocol):
    """Local variables of a step's function; see gpu_plan.planner.memory.optimizer.scratch."""

    def bind(self, variable: str, sizes: int | Sequence[int], module: str = "") -> None:
        """Assigns new storage of so many bytes, or a list of it; what the variable held goes afterwards."""

    def move(self, source: str, target: str) -> None:
        """`target = source; del source`."""

    def drop(self, *variables: str) -> None:
        """`del variable`; what is not bound is passed over."""

    def close(self) -> None:
        """The function returns."""


class Seen(NamedTuple):
    """An optimizer as a captured script made it."""

    module: str
    """Of its class: `torch.optim.adamw`."""
    name: str
    """Of its class."""
    options: Mapping[str, object]
    """Of its first group: fused, foreach, momentum, ...; weight_decay is the most of all groups. Of bitsandbytes'
    optimizers also optim_bits and is_paged."""

    @property
    def is_torch(self) -> bool:
        return self.module.startswith("torch.optim")

    @property
    def is_bitsandbytes(self) -> bool:
        return self.module.startswith("bitsandbytes")


class Ran(NamedTuple):
    """An optimizer's class as a rank saw it: `torch.optim.adamw.AdamW (fused)`."""

    package: str
    """`torch`, `bitsandbytes`, `deepspeed`, ..."""
    kind: str
    """The class's name in lower case."""
    fused: bool = False

    @property
    def is_eight_bit(self) -> bool:
        """Whether its state may be codes; bitsandbytes' 32-bit classes are told apart by their state alone."""
        return "8bit" in self.kind or self.package == "bitsandbytes"


StateRule = Callable[["LocalTensor", bool], Iterator[Kept]]
"""What is kept for a parameter; the flag says that embeddings keep fp32 state under 8-bit optimizers (the Trainer)."""
StepRule = Callable[[Scratch, Sequence["LocalTensor"]], None]
"""Temporaries of one step over all parameters, in the order in which the real one makes and drops them."""
SharedRule = Callable[[Sequence["LocalTensor"], bool], Iterator[Kept]]
"""What is kept once for all parameters; the flag as in a StateRule."""
Traffic = Callable[[int], int]
"""Bytes of memory that a step reads and writes for each element, by the bytes of an element."""


def in_place(scratch: Scratch, tensors: Sequence["LocalTensor"]) -> None:
    """A step that makes nothing."""


def nothing_shared(tensors: Sequence["LocalTensor"], full_embeddings: bool) -> Iterator[Kept]:
    return iter(())


def never(seen: Seen) -> bool:
    return False


class OptimizerTraits(NamedTuple):
    """One optimizer. What has no default, every optimizer must say: the rest, left unsaid, is refused or told."""

    name: str
    """Value of `--optimizer`."""
    place: int
    """Where lists show it: ascending."""
    state: StateRule
    traffic: Traffic
    """On a GPU. A fused kernel passes over memory once; operators that are not fused pass over it one by one."""
    saved_bytes: tuple[float, float]
    """Of state in a checkpoint, by trainable parameter: behind fp32 weights, and behind pure 16-bit ones."""
    package: str
    """Distribution that brings it, beside torch and transformers; empty: none."""
    takes_dtensors: bool
    """Whether its step works on DTensors (FSDP2), not on plain tensors of its own beside them. One that does not,
    sees FSDP1's flat shards as vectors and is cut at their boundaries."""
    explored: int | None
    """Where the explorer's key stops at it: ascending; None: it passes over it."""
    step: StepRule = in_place
    shared: SharedRule = nothing_shared
    made_with_it: bool = False
    """Whether its state stands as soon as it is made, before any step."""
    cpu_traffic: Traffic | None = None
    """Where torch steps CPU tensors otherwise; None: as on a GPU."""
    help: str = ""
    """A few words that `--help` puts behind the name."""

    # -- what its kernels know ---------------------------------------------------------------------------------

    matrices_only: str = ""
    """Whose class it is, where that steps matrices alone, so that flattened or sharded parameters are none for it."""
    is_paged: bool = False
    """Whether a part of its state lies in CUDA managed memory."""
    deepspeed_steps_on_host: bool = False
    """Whether DeepSpeed's CPU Adam takes its place under optimizer offload."""
    leaner: str = ""
    """Name of an optimizer that makes the same update with less beside it."""

    # -- its names elsewhere -----------------------------------------------------------------------------------

    optim: str = ""
    """transformers' `--optim` (training_args.py: OptimizerNames); empty where the Trainer has no word for it."""
    optim_read: tuple[str, ...] = ()
    """Further words in other tools' files that mean it."""
    with_momentum: str = ""
    """The optimizer that it is once a momentum is given."""
    deepspeed: tuple[str, ...] = ()
    """`type` in DeepSpeed's table of the optimizer, in lower case."""
    deepspeed_torch: tuple[str, ...] = ()
    """The same where that table says `torch_adam`."""
    llamafactory_switch: str = ""
    """LLaMA-Factory's flag that chooses it."""
    captured: Callable[[Seen], bool] = never
    """Whether it allocates as what a captured script made."""
    ran: Callable[[Ran], bool] | None = None
    """Whether a rank's class is it; None: the class's name holds the optimizer's."""
    classes: tuple[str, ...] = ()
    """Patterns of the class names by which scripts make it, prefixes such as `Paged` and `Fused` aside."""

    def is_what_ran(self, found: Ran) -> bool:
        """Whether a rank's class is this optimizer."""
        return self.name.replace("-", "") in found.kind if self.ran is None else self.ran(found)


def passes(tensors: int) -> Traffic:
    """Traffic of a step that reads and writes parameter-sized tensors so many times."""
    return lambda element_bytes: tensors * element_bytes
