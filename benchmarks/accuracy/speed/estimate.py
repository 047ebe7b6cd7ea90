"""Predicted step times against published training speeds, by the same code that ranks plans.

Nothing is fitted: rates come from published measurements of operators and transfers, never from these rows.
"""

import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.accuracy.models import Models
from benchmarks.accuracy.row import Row, SetAside, identity, text
from benchmarks.accuracy.speed.cases import group_of, measured_step_seconds, setup_of
from benchmarks.accuracy.speed.setup import Setup
from benchmarks.accuracy.speed.sources import WITHOUT, sources, told_without
from gpu_plan.planner.model.source.resolve import ModelSource, resolve
from gpu_plan.planner.search.training.candidates import Batch
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.events import Category
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.workload.training import Stack

_STATES = (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATE)


class SpeedLines:
    """Lines of the table; a model's traces are made once for all of its rows."""

    def __init__(self, models: Models, *, without: bool = False) -> None:
        """`without`: every row is told without each source of the speed model's tables as well."""
        self._models = models
        self._without = without
        self._folder = TemporaryDirectory()
        self._providers: dict[tuple[str, ...], TraceProvider] = {}

    def line(self, row: Row) -> dict[str, Any]:
        """One row of the table, times in seconds. SetAside when the row cannot be scored."""
        setup = setup_of(row, self._models)
        # transformers made reentrant checkpoints by default before its release 5; every row is older.
        speed = RooflineModel(
            reentrant=setup.workload.stack is Stack.TRAINER, blocking=setup.blocking, layers=setup.layers
        )
        family = setup.family
        batch = Batch(micro_batch=setup.micro_batch, accumulation_steps=setup.accumulation_steps)

        def judge() -> StepJudgement:
            evaluator = Evaluator(
                provider=self._provider(setup),
                workload=setup.workload,
                cluster=setup.cluster,
                speed=speed,
                config=setup.config,
            )
            return evaluator.judge(family, batch)

        def told() -> tuple[float, float, float]:
            time = judge().time
            return time.step_seconds, time.low_seconds, time.high_seconds

        judged = judge()
        if sum(judged.profile.at_peak.get(kind, 0) for kind in _STATES) > judged.capacity_bytes:
            raise SetAside("its states, as told, are larger than its devices")
        time = judged.time
        tokens = setup.micro_batch * setup.accumulation_steps * setup.workload.seq_len / family.copy_ranks
        measured = measured_step_seconds(row, tokens)
        if (time.mfu or 0.0) * time.step_seconds > measured:
            raise SetAside("as told it computes faster than its devices' peak")
        return {
            "kind": "speed",
            "id": identity(row),
            "group": group_of(row),
            "source": text(row, "source"),
            "model": text(row, "model"),
            "gpus": setup.cluster.spec,
            "strategy": setup.strategy,
            "compared_as": str(setup.workload.stack),
            "micro_batch": setup.micro_batch,
            "accumulation_steps": setup.accumulation_steps,
            "degrees": setup.degrees,
            "tokens": tokens,
            "seq_len": setup.workload.seq_len,
            "checkpointing": str(setup.checkpointing),
            "measured": measured,
            "predicted": time.step_seconds,
            "low": time.low_seconds,
            "high": time.high_seconds,
            "ratio": time.step_seconds / measured,
            "inside": time.low_seconds <= measured <= time.high_seconds,
            "parts": {
                "forward": time.forward_seconds,
                "backward": time.backward_seconds,
                "recompute": time.recompute_seconds,
                "optimizer": time.optimizer_seconds,
                "communication": time.communication_seconds,
                "exposed": time.exposed_communication_seconds,
            },
            "basis": time.basis,
            "differences": list(setup.differences),
            **({WITHOUT: told_without(sources(setup.cluster.gpu.id), told)} if self._without else {}),
        }

    def _provider(self, setup: Setup) -> TraceProvider:
        source = self._source(setup)
        adapter = setup.adapter.key() if setup.adapter else ""
        device = device_kind(setup.cluster.gpu)
        key = (source.digest, device.key, str(setup.workload.attention), adapter)
        if key not in self._providers:
            self._providers[key] = TraceProvider(
                source=source, device=device, attention=str(setup.workload.attention), adapter=setup.adapter
            )
        return self._providers[key]

    def _source(self, setup: Setup) -> ModelSource:
        if setup.source is not None:
            return setup.source
        written = json.dumps(dict(setup.config or {}), sort_keys=True)
        path = Path(self._folder.name) / f"{hashlib.sha256(written.encode()).hexdigest()}.json"
        path.write_text(written)
        return resolve(str(path))
