"""Every field that a launch writes, gathered from launches of every strategy, loop, precision, engine and setting."""

import itertools
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from unittest import mock

import yaml

from gpu_plan.executor import names
from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.engines.registry import ENGINES
from gpu_plan.executor.launch.environment import strategy_names
from gpu_plan.executor.launch.export import export
from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.launch.prepare import prepare
from gpu_plan.executor.launch.prompts import prepare_inference
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.plan.files import load
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.workload.training import Optimizer
from tests.support.launch_plans import STAGES, saved

ROOT = Path(__file__).parents[2]
SCRIPTS = {
    "accelerate": "from accelerate import Accelerator\nAccelerator().accumulate(model)\n",
    "trainer": "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "Trainer(args=HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()[0]).train()\n",
    "plain": "loss.backward()\n",
}
ALLOCATOR = {"alloc.expandable_segments": "true"}
DATA = {f"data.{name}": "true" for name in ("split_batches", "dispatch_batches", "even_batches", "seedable_sampler")}
COMPILED = {"compile.backend": "inductor", "compile.mode": "default", "compile.regional": "true"}
MORE = {"clip.max_norm": "0.5", "eval.batch": "2", "eval.accumulation_steps": "3", "checkpoint.every": "2"}
SETTINGS: Mapping[str, str] = {**ALLOCATOR, **DATA, **COMPILED, **MORE}
_SGD = Optimizer("sgd")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SWAPS = ({}, {"zero.offload_param": "cpu"})


def written() -> set[tuple[str, str]]:
    """`(place, field)`: place is a file's name, `environment`, `runner`, a launcher, or `script`."""
    found: set[tuple[str, str]] = {("environment", name) for name in (*strategy_names(), names.RUN_ID)}
    unset = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    with tempfile.TemporaryDirectory() as name, mock.patch.dict(os.environ, unset, clear=True):
        for launch in (*_training(Path(name)), *_inference(Path(name))):
            found |= set(_of(launch))
    return found


def _plans() -> Iterator[SavedPlan]:
    for strategy, gpus in itertools.product(STAGES, ("8xH100", "2x8xH100", "2xcpu")):
        if strategy == "single":
            gpus = {"8xH100": "1xH100"}.get(gpus, "1xcpu")
        yield saved(strategy, gpus, settings=SETTINGS, checkpointing="full", fused_loss=True, optimizer=_SGD)
        for precision, backend in (("fp16-mixed", None), ("fp8-mixed", "te"), ("fp8-mixed", "torchao")):
            yield saved(strategy, gpus, precision=precision, settings={"fp8.backend": backend} if backend else {})
    for offload in ("optimizer", "all"):
        yield saved("zero3", "8xH100", offload=offload)
        yield saved("fsdp", "8xH100", offload=offload)
    for strategy in ("fsdp", "zero3"):
        yield saved(strategy, "8xH100", context_parallel=4)
    yield saved("fsdp", "8xH100", checkpointing="full", settings={"checkpoint.offload": "true"})
    for settings in SWAPS:
        yield saved("zero3", "8xH100", offload="nvme", settings=settings)


def _training(folder: Path) -> Iterator[LaunchFiles]:
    place = RunFolder(folder / "runs" / "RUN")
    for loop, text in SCRIPTS.items():
        script = folder / f"{loop}.py"
        script.write_text(text)
        for plan in _plans():
            hosts = ("a", "b") if plan.cluster["nodes"] == 2 else ()
            job = Job(saved=plan, script=script, working_directory=folder, hosts=hosts, allow_deviation=True)
            yield prepare(job, attempt=2, folder=place, resume_from=folder / "step-2")
            for engine in ENGINES:
                try:
                    yield export(job, None, engine=engine, folder=folder)
                except UsageError:
                    continue  # DeepSpeed's launcher runs ZeRO alone


def _inference(folder: Path) -> Iterator[LaunchFiles]:
    script = folder / "plain.py"
    plan = load(str(ROOT / "tests" / "golden" / "written_before" / "generate.json"))
    for ranks in (1, 2):
        choice = replace(plan.plan.strategy, tensor_parallel=ranks, name="single" if ranks == 1 else "tp")
        for gpu in ("H100", "cpu"):
            saved_plan = replace(
                plan,
                cluster={**plan.cluster, "gpu_id": gpu, "nodes": 1},
                workload={**plan.workload, "settings": ALLOCATOR},
                plan=replace(plan.plan, strategy=choice),
            )
            job = Job(saved=saved_plan, script=script, working_directory=folder)
            yield prepare_inference(job, attempt=1, folder=RunFolder(folder / "runs" / "RUN"), resume_from=None)


def _of(launch: LaunchFiles) -> Iterator[tuple[str, str]]:
    for name, text in launch.files.items():
        if name.endswith((".yaml", ".json")):
            yield from ((name, field) for field in _fields(yaml.load(text, Loader=_LOADER)))
    for name, value in launch.environment.items():
        yield "environment", name
        if name == names.OPTIONS:
            yield from (("runner", field) for field in json.loads(value))
    own = next((at for at, word in enumerate(launch.command) if word.endswith(".py")), len(launch.command))
    for at, word in enumerate(launch.command):
        if word.startswith("--"):
            yield ("script" if at > own else "launcher"), word


def _fields(value: object, prefix: str = "") -> Iterator[str]:
    if not isinstance(value, dict):
        yield prefix.removesuffix(".")
        return
    for key, inner in value.items():
        yield from _fields(inner, f"{prefix}{key}.")
