"""One launch in words that every engine understands: made from a job and its script, read by the engines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_plan.executor.runner.parallel.degrees import Degrees
from gpu_plan.executor.runner.parallel.piped.layout import Layout
from gpu_plan.executor.script.loop import Loop
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.plan.figures import StrategyChoice
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.strategy.known import traits_of
from gpu_plan.planner.strategy.traits import Traits
from gpu_plan.planner.workload.precisions import PrecisionTraits, stored_precision

DEFAULT_PORT = 29500
"""Of the rendezvous between nodes, as torchrun and Accelerate have it."""

RUNNER = "gpu_plan.executor.runner"
"""Module that starts a script on a rank and records what happens there."""
START_FILE = "start_rank.py"
"""What starts it where nothing of ours is, and ranks need more than a launcher gives them: CPU ranks under a strategy
that Accelerate has on GPUs only, and models that are spread over ranks. See gpu_plan.executor.launch.engines.portable.
"""

DATA_LOADER: Mapping[str, str] = {
    "data.split_batches": "split_batches",
    "data.dispatch_batches": "dispatch_batches",
    "data.even_batches": "even_batches",
    "data.seedable_sampler": "use_seedable_sampler",
}
"""Fields of accelerate utils/dataclasses.py: DataLoaderConfiguration, by `--set` key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is to be launched, and from where."""

    saved: SavedPlan
    script: Path
    arguments: tuple[str, ...] = ()
    """All words after the script: those that the plan adds, then the user's."""
    loop: Loop = "unknown"
    """Who runs the script's loop."""
    folder: Path
    """Absolute; where the launch files lie."""
    logs: Path | None = None
    """Folder for each rank's output; None where only the terminal shows it."""
    observed: bool = True
    """Whether each rank is started through the in-rank runner."""
    launcher: tuple[str, ...] = ("accelerate", "launch")
    """Words that start Accelerate's command line."""
    torchrun: tuple[str, ...] = ("torchrun",)
    hosts: tuple[str, ...] = ()
    machine_rank: int = 0
    port: int | None = None
    made_by: str = ""
    """The command that makes these files, for their headers."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What every rank finds in its environment besides what the engine itself sets."""
    placed: bool = False
    """Whether an engine places the nodes: where they meet, and which one this is, stands in the environment (PET_*)."""
    script_checkpoints: bool = False
    """Whether the script itself switches activation checkpointing on where the plan has it."""
    batch_is_users: bool = False
    """Whether the user's own arguments set micro batch or accumulation: nothing else then does."""
    script_clips: float | None = None
    """Norm to which the script's text clips gradients; None where it does not, or does not tell."""

    @property
    def script_word(self) -> str:
        """The script as launchers are to take it: `./-x.py` keeps its `./`, which `Path` drops, and is no option."""
        word = str(self.script)
        return f"./{word}" if word.startswith("-") else word

    @property
    def strategy(self) -> StrategyChoice:
        return self.saved.plan.strategy

    @property
    def traits(self) -> Traits:
        """Of the planned strategy; UsageError where this version has none of that name."""
        return traits_of(self.strategy.name)

    @property
    def units(self) -> tuple[str, ...]:
        """Classes that FSDP wraps one by one."""
        return self.saved.plan.units

    @property
    def chosen(self) -> Mapping[str, str]:
        """Settings that the planner chose for the run, by `--set` key."""
        return self.saved.plan.chosen

    @property
    def on_cpu(self) -> bool:
        return self.saved.cluster.get("gpu_id", self.saved.cluster["gpu"]) == "cpu"

    @property
    def world_size(self) -> int:
        return self.strategy.world_size

    @property
    def nodes(self) -> int:
        return int(str(self.saved.cluster["nodes"]))

    @property
    def per_node(self) -> int:
        return self.world_size // self.nodes

    @property
    def uses_fsdp(self) -> bool:
        return self.traits.wraps_blocks

    @property
    def precision(self) -> PrecisionTraits:
        return stored_precision(self.strategy.precision)

    @property
    def uses_deepspeed(self) -> bool:
        return self.traits.uses_deepspeed

    @property
    def in_trainer(self) -> bool:
        """Whether Hugging Face's Trainer fills in what the configuration leaves `auto`."""
        return self.loop == "trainer"

    @property
    def needs_cpu_ranks(self) -> bool:
        """Whether CPU processes run what Accelerate joins on GPUs only: the runner then makes gloo ranks of them."""
        return self.on_cpu and (self.uses_fsdp or self.uses_deepspeed or self.joins_ranks)

    @property
    def spreads_model(self) -> bool:
        """Whether transformers itself spreads the model, or its experts, over the ranks."""
        return self.traits.spreads

    @property
    def degrees(self) -> Degrees | None:
        """How the model is spread; None where each rank computes a copy of its own."""
        if not self.spreads_model:
            return None
        strategy = self.strategy
        replicas = self.replicas if self.traits.replicates else 1
        shards = strategy.data_parallel // replicas
        return Degrees(
            tp_size=strategy.tensor_parallel,
            fsdp_size=shards,
            dp_replicate_size=replicas,
            ep_size=strategy.expert_parallel,
            fsdp_mixed_precision=shards > 1 and self.precision.mixed,
        )

    @property
    def layout(self) -> Layout | None:
        """How the model is cut into stages; None where it is not."""
        traits, strategy, stages = self.traits, self.strategy, self.saved.plan.stages
        if not traits.pipeline_parallel:
            return None
        runs = [one.layers for one in stages]
        sharded = traits.stage == 3
        alone = traits.pipeline_parallel == "all"
        return Layout(
            schedule=Schedule(strategy.schedule).torch_class,
            ranks=strategy.pipeline_parallel,
            pipelines=strategy.data_parallel,
            together=strategy.tensor_parallel,
            micro_batches=strategy.gradient_accumulation_steps,
            stages=tuple(layers[place] for place in range(strategy.virtual_stages) for layers in runs),
            data="whole" if alone else "sharded" if sharded else "averaged",
            compute=self.precision.dtype if sharded and self.precision.mixed else "",
        )

    @property
    def joins_ranks(self) -> bool:
        """Whether several ranks compute one copy of the model together, which the runner brings about in each."""
        return self.spreads_model or self.layout is not None

    @property
    def goes_by_accelerate(self) -> bool:
        """Whether `accelerate launch` can start it: with degrees in its file it takes tensor parallel alone.

        accelerate commands/launch.py: _validate_launch_command refuses them as options without FSDP2, and reads the
        file after that; beside FSDP2 accelerator.py: _prepare_tp imports what transformers has removed.
        """
        degrees = self.degrees
        if self.layout is not None or degrees is None:
            return self.layout is None
        return degrees.fsdp_size == degrees.dp_replicate_size == degrees.ep_size == 1

    @property
    def emulates_float8(self) -> bool:
        """Whether CPU processes train in float8, whose products the runner has torchao emulate."""
        return self.on_cpu and self.precision.float8

    @property
    def needs_start_files(self) -> bool:
        """Whether the files that a rank starts with go along with the launch files."""
        return not self.observed and (self.needs_cpu_ranks or self.emulates_float8 or self.joins_ranks)

    def starter(self, option: str) -> tuple[str, ...]:
        """Words before the script; `option` is the launcher's own for a module."""
        if self.observed:
            return (option, RUNNER)
        return (str(self.folder / START_FILE),) if self.needs_start_files else ()

    @property
    def max_grad_norm(self) -> float | None:
        """Norm to which DeepSpeed is to clip, 0 for not at all: as the user, the captured script, or the script's text
        says. None where none of them does."""
        planned = self.saved.workload.get("max_grad_norm")
        return float(planned) if isinstance(planned, (int, float)) else self.script_clips

    @property
    def compiler(self) -> str | None:
        """Backend of torch.compile with which the plan has the model compiled; None where it does not."""
        return self.setting("compile.backend")

    @property
    def replicas(self) -> int:
        """Whole sharded copies of the model under HSDP: as planned, else as asked, else one on each node."""
        if self.strategy.dp_replicate > 1:
            return self.strategy.dp_replicate
        given = self.saved.workload.get("dp_replicate")
        return int(str(given)) if given is not None else self.nodes

    @property
    def checkpoint_every(self) -> int:
        """Of the layers, every how many-th is checkpointed."""
        return int(self.setting("checkpoint.every", "1") or 1)

    @property
    def wrapper_checkpoints(self) -> bool:
        """Whether Accelerate's FSDP plugin checkpoints each wrapped layer; beside the Trainer's own it would raise."""
        full = self.strategy.checkpointing == "full" and self.checkpoint_every == 1
        return full and self.uses_fsdp and not self.in_trainer and not self.script_checkpoints

    @property
    def checkpoints_on_host(self) -> bool:
        """Whether Accelerate's FSDP plugin has what it checkpoints wait in host memory."""
        return self.wrapper_checkpoints and self.setting("checkpoint.offload") == "true"

    @property
    def data_loader(self) -> dict[str, bool]:
        """Fields of Accelerate's DataLoaderConfiguration that `--set data.*` gives."""
        given = {name: self.setting(key) for key, name in DATA_LOADER.items()}
        return {name: value == "true" for name, value in given.items() if value is not None}

    @property
    def loader_batch(self) -> int:
        """The DataLoader's batch size: the micro batch, or where batches are split, that of all ranks together."""
        split = self.data_loader.get("split_batches", False)
        return self.strategy.loop_batch_size * (self.strategy.data_parallel if split else 1)

    def setting(self, key: str, default: str | None = None) -> str | None:
        """Value of a `--set` key, given or chosen by the planner, or `default`."""
        settings = self.saved.workload.get("settings")
        value = settings.get(key) if isinstance(settings, Mapping) else None
        value = self.chosen.get(key) if value is None else value
        return default if value is None else str(value)

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port of the rendezvous; port 0 means: a free one."""
        host, _, port = self.hosts[0].rpartition(":") if self.hosts else ("127.0.0.1", "", "")
        if not host:
            host, port = port, ""
        fallback = DEFAULT_PORT if self.nodes > 1 else 0
        return host, self.port if self.port is not None else int(port) if port else fallback
