"""From a saved plan to a folder that an engine runs by itself: nothing of ours is started with it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpu_plan.executor.engines.engine import Engine, Settings, Shape
from gpu_plan.executor.job import Job, Placement
from gpu_plan.executor.launch.export import export
from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.script.imported import modules_beside
from gpu_plan.executor.script.read import Script
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.plan.saved import SavedPlan

CODE = "code"
"""Folder of the script and what it imports."""
README = "README.md"


def shape_of(saved: SavedPlan, name: str) -> Shape:
    """What a plan asks of an engine, under a name that every queue takes."""
    nodes = int(str(saved.cluster["nodes"]))
    on_cpu = saved.cluster.get("gpu_id", saved.cluster["gpu"]) == "cpu"
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name).strip("-").lower()
    return Shape(
        name=(plain or "plan")[:40].strip("-"),
        nodes=nodes,
        ranks_per_node=saved.plan.strategy.world_size // nodes,
        gpu=None if on_cpu else str(saved.cluster["gpu"]),
    )


def export_to(job: Job, script: Script | None, *, engine: Engine, settings: Settings, folder: Path) -> LaunchFiles:
    """The engine's files, the launch command of one node, and the script with what it imports. Pure but for reading.

    Errors as `export` raises them; UsageError for a setting that the engine's file has no way to say.
    """
    placed = replace(job, script=folder / CODE / job.script.name, hosts=(), placement=Placement(engine=engine.name))
    launch = export(placed, script, engine="torchrun", folder=folder)
    shape = shape_of(job.saved, job.script.stem)
    code = {} if script is None else _code(script)
    own = {**launch.files, **{f"{CODE}/{name}": text for name, text in code.items()}}
    readme = _readme(engine, shape, job, script, tuple(code))
    files = {**engine.exported(shape, settings, own), **own, README: readme}
    return replace(launch, engine=engine.name, files=files, command=tuple(engine.command(folder)))


def _code(script: Script) -> dict[str, str]:
    """The script, and the modules beside it that it imports."""
    found = {script.path.name: script.path}
    found |= modules_beside(script)
    texts = {}
    for name, path in found.items():
        try:
            texts[name] = path.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot go along: {error}") from None
    return texts


def _readme(engine: Engine, shape: Shape, job: Job, script: Script | None, code: Sequence[str]) -> str:
    strategy = job.saved.plan.strategy
    what = f"{strategy.name} on {job.saved.cluster['spec']}: {shape.nodes} nodes, {shape.ranks_per_node} ranks on each"
    with_it = f"`{CODE}/` holds {', '.join(code[:6])}{', ...' if len(code) > 6 else ''}" if code else ""
    put = f"Put the script at `{CODE}/{job.script.name}`; SCRIPT=/path names another."
    lines = [
        f"# {job.script.name} by {engine.title}",
        "",
        f"{what}, micro batch {strategy.micro_batch_size}, accumulation {strategy.gradient_accumulation_steps}.",
        *engine.how_to(shape),
        "`command.sh` starts the ranks of one node; it needs PET_MASTER_ADDR, PET_MASTER_PORT and PET_NODE_RANK.",
        f"{with_it}; data does not go along." if script is not None else put,
    ]
    return "\n".join(lines) + "\n"
