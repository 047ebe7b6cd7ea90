"""Learning-rate schedules."""

from collections.abc import Iterator

from gpu_plan.executor.doctor.flow import Flow
from gpu_plan.executor.doctor.flow import values as v
from gpu_plan.executor.doctor.flow.events import SYNC, Call
from gpu_plan.executor.doctor.intent import Intent
from gpu_plan.executor.doctor.rules.common import accumulation_of, text
from gpu_plan.executor.doctor.rules.rule import Hit, Rule


def _not_prepared(flow: Flow, intent: Intent) -> Iterator[Hit]:
    accumulated = [c for c in flow.calls_of("backward") if "accumulate" in c.context.withs]
    if not accumulated or accumulation_of(flow) is None:
        return
    loops = {loop.node for call in accumulated for loop in call.context.loops[-1:]}
    for call in flow.calls_of("step"):
        held = call.receiver
        if held.kind != "scheduler" or not held.origins or held.origins & flow.prepared or SYNC in call.context.guards:
            continue
        here = call.context.loops[-1:]
        if here and here[0].node in loops and not call.context.tests_in_loop:
            yield Hit(
                line=call.line, what=f"{text(call.node)} on a scheduler that was never prepared, under accumulate()"
            )


def _every_micro_batch(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if any("accumulate" in call.context.withs for call in flow.calls):
        return
    gated = [c for c in flow.calls_of("step") if c.receiver.kind == "optimizer" and _gated(c)]
    loops = {call.context.loops[-1].node for call in gated}
    for call in flow.calls_of("step"):
        inside = call.context.loops and call.context.loops[-1].node in loops
        if call.receiver.kind == "scheduler" and inside and not call.context.tests_in_loop:
            yield Hit(line=call.line, what=f"{text(call.node)} on every micro batch; the optimizer steps on some only")


def _gated(call: Call) -> bool:
    return bool(call.context.loops) and SYNC in call.context.guards


def _too_short(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls:
        if call.receiver.kind != "accelerator" or call.method not in {"prepare", "prepare_scheduler"}:
            continue
        for value in v.flat(call.result):
            if value.kind == "scheduler" and value.has(v.SHARDED_LENGTH):
                what = "a schedule counted in one rank's batches is prepared"
                yield Hit(line=call.line, what=what)


RULES = (
    Rule(
        id="scheduler-not-prepared",
        severity="error",
        why="it steps on every micro batch, the optimizer only on every Nth: the learning rate decays N times too fast",
        fix="give the scheduler to accelerator.prepare, or step it under `if accelerator.sync_gradients:`",
        check=_not_prepared,
        several_ranks=False,
    ),
    Rule(
        id="scheduler-every-micro-batch",
        severity="warning",
        why="the learning rate decays with micro batches, not with optimizer steps",
        fix="step the scheduler where the optimizer steps",
        check=_every_micro_batch,
        several_ranks=False,
    ),
    Rule(
        id="schedule-too-short",
        severity="error",
        why="a prepared scheduler steps once per rank at each step: with N ranks it ends N times too early",
        fix="multiply the number of steps by accelerator.num_processes, or count them before prepare",
        check=_too_short,
    ),
)
