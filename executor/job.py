"""What is to be executed: a plan, a script, and how."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.workload.adapters import stored_adapters


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How an engine starts one launcher on each of the nodes that it gave. The launcher reads PET_MASTER_ADDR,
    PET_MASTER_PORT and PET_NODE_RANK (torch.distributed.run: `env`), which say where it is."""

    engine: str
    start: tuple[str, ...] = ()
    """Words before the launch command, on the node that leads; empty where files are only written."""
    head: str = ""
    """Address at which the nodes meet."""
    sweep: tuple[str, ...] = ()
    """A command that ends whatever still runs of earlier launches on the other nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One `plan --execute SCRIPT -- ARGS`."""

    saved: SavedPlan
    script: Path
    """Absolute."""
    arguments: tuple[str, ...] = ()
    """The user's own, after `--`; they win over what the plan would pass."""
    working_directory: Path
    max_restarts: int = 3
    """Attempts after the first one, after a crash or a hang; out-of-memory replans are not counted."""
    hosts: tuple[str, ...] = ()
    """One per node, the rendezvous on the first; empty on one node."""
    machine_rank: int = 0
    """Which of `hosts` this machine is."""
    main_process_port: int | None = None
    """None: a free one is chosen (one node)."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the ranks' environment."""
    command: str = ""
    """The command line that executes it, for the headers of the launch files."""
    check_parameters: bool = True
    """Whether a script whose model has another parameter count than the plan's ends as a preflight failure."""
    leave_running: tuple[str, ...] = ()
    """Programs that the user wants to live on where the job starts them; everything else ends with the run."""
    allow_deviation: bool = False
    """Whether a job is launched that is known to train otherwise than planned: another batch, other clipping."""
    stop_on_nan: bool = False
    """Whether the run ends where a loss is no finite number."""
    placement: Placement | None = None
    """Of a job whose nodes are an engine's to give; None where it runs here, or on `hosts`."""

    @property
    def expected_parameters(self) -> int | None:
        """How many parameters the script's model must have; None where they are not to be compared."""
        # 4-bit weights are packed: their elements are not the model's parameters.
        countable = self.check_parameters and not stored_adapters(self.saved.workload.get("peft")).quantises
        # A script's several models (one that is trained, and its reference) are counted together, and met one by one.
        captured = self.saved.workload.get("script")
        countable = countable and not (isinstance(captured, Mapping) and captured.get("models"))
        return self.saved.model.parameters if countable else None
