"""Losses, gradients and their accumulation."""

from collections.abc import Iterator

from gpu_plan.executor.doctor.flow import Flow
from gpu_plan.executor.doctor.flow import values as v
from gpu_plan.executor.doctor.intent import Intent
from gpu_plan.executor.doctor.rules.common import accumulation_of, is_plain_backward, text, training_loops
from gpu_plan.executor.doctor.rules.rule import Hit, Rule


def _plain_backward(flow: Flow, intent: Intent) -> Iterator[Hit]:
    prepares = [c for c in flow.calls if c.receiver.kind == "accelerator" and c.method.startswith("prepare")]
    prepared = [c for c in prepares if {"model", "optimizer"} & {a.kind for a in v.flat(c.result)}]
    if not prepared:
        return
    for call in flow.calls_of("backward"):
        if is_plain_backward(call) and call.context.loops and call.receiver.kind != "optimizer":
            yield Hit(line=call.line, what=f"{text(call.node)} in a script whose model is prepared by Accelerate")


def _divided_twice(flow: Flow, intent: Intent) -> Iterator[Hit]:
    told = accumulation_of(flow)
    if told is None:
        return
    for call in flow.calls_of("backward"):
        if call.receiver.kind == "accelerator" and call.arguments and call.arguments[0].has(v.DIVIDED):
            what = f"the loss given to {text(call.node)} was divided by the accumulation steps already"
            yield Hit(line=call.line, what=f"{what}, and the Accelerator knows them ({text(told, 30)})")


def _accumulation_unused(flow: Flow, intent: Intent) -> Iterator[Hit]:
    told = accumulation_of(flow)
    if told is None:
        return
    waits = {"accumulate", "no_sync"}
    handled = any(waits & call.context.withs or call.method in waits for call in flow.calls) or any(
        "sync" in call.context.guards for call in flow.calls
    )
    handled = handled or "no_sync" in {access.node.attr for access in flow.accesses}
    if handled:
        return
    for call in flow.calls_of("step"):
        if call.receiver.kind == "optimizer" and call.receiver.has(v.PREPARED) and call.context.loops:
            yield Hit(line=call.line, what=f"{text(call.node)} runs on every micro batch: nothing calls accumulate()")
            return


def _own_scaler(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if not flow.uses_accelerator:
        return
    for call in flow.calls_of("scale"):
        if call.receiver.kind == "scaler":
            yield Hit(line=call.line, what=f"{text(call.node)}: a GradScaler of the script's own beside Accelerate's")
            return


def _torch_clipping(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls_of("clip_grad_norm_", "clip_grad_value_"):
        if not call.name.startswith("torch.nn.utils") or not call.arguments or not flow.uses_accelerator:
            continue
        if call.arguments[0].kind == "parameters" and call.arguments[0].origins & flow.prepared:
            severe = bool(intent.scales_loss) or bool(intent.shards_model)
            yield Hit(line=call.line, what=text(call.node), severity="error" if severe else None)


def _zero_grad_missing(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if flow.calls_of("zero_grad") or any(access.node.attr == "grad" for access in flow.accesses):
        return
    cleared = any(event.method in {"set_to_none"} for event in flow.calls)
    loops = training_loops(flow)
    for call in flow.calls_of("step"):
        inside = any(loop.node in loops for loop in call.context.loops)
        if call.receiver.kind == "optimizer" and inside and not call.node.args and not cleared:
            yield Hit(line=call.line, what=f"{text(call.node)}, and zero_grad() is nowhere called")
            return


def _optimizer_not_prepared(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if not flow.uses_accelerator:
        return
    accumulates = any("accumulate" in call.context.withs for call in flow.calls)
    for call in flow.calls_of("step"):
        held = call.receiver
        if held.kind != "optimizer" or not held.origins or held.origins & flow.prepared or not call.context.loops:
            continue
        trained = frozenset().union(*(flow.optimizer_sources.get(origin, frozenset()) for origin in held.origins))
        if trained & flow.prepared:
            what = f"{text(call.node)} on an optimizer that was never prepared"
            yield Hit(line=call.line, what=what, severity="error" if accumulates else None)
            return


def _model_not_prepared(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if not flow.prepared:
        return
    for call in flow.calls_of("step"):
        held = call.receiver
        if held.kind != "optimizer" or not held.origins or not call.context.loops:
            continue
        trained = frozenset().union(*(flow.optimizer_sources.get(origin, frozenset()) for origin in held.origins))
        if trained and held.origins & flow.prepared and not trained & (flow.prepared | flow.wrapped):
            yield Hit(line=call.line, what=f"{text(call.node)} trains a model that was never given to prepare()")
            return


RULES = (
    Rule(
        id="plain-backward",
        severity="error",
        why="fp16 losses are not scaled, ZeRO never reduces its gradients, and accumulation does not divide the loss",
        fix="write accelerator.backward(loss)",
        check=_plain_backward,
        several_ranks=False,
    ),
    Rule(
        id="loss-divided-twice",
        severity="error",
        why="accelerator.backward divides the loss by the same number again: gradients are N times too small",
        fix="pass the undivided loss to accelerator.backward",
        check=_divided_twice,
        several_ranks=False,
    ),
    Rule(
        id="accumulation-unused",
        severity="error",
        why="accelerator.backward divides each loss by the accumulation steps, yet every micro batch is a full step",
        fix="put the step inside `with accelerator.accumulate(model):`",
        check=_accumulation_unused,
        several_ranks=False,
    ),
    Rule(
        id="own-grad-scaler",
        severity="error",
        why="under fp16 Accelerate scales the loss and steps through its own scaler: it would be scaled twice",
        fix="drop the GradScaler; Accelerator(mixed_precision='fp16') has one",
        check=_own_scaler,
        several_ranks=False,
    ),
    Rule(
        id="torch-clipping",
        severity="warning",
        why="under fp16 the gradients are still scaled, and under FSDP the norm is that of this rank's shard alone",
        fix="write accelerator.clip_grad_norm_(model.parameters(), max_norm) under `if accelerator.sync_gradients:`",
        check=_torch_clipping,
        several_ranks=False,
    ),
    Rule(
        id="zero-grad-missing",
        severity="error",
        why="gradients of all steps add up: the model diverges",
        fix="call optimizer.zero_grad() after each optimizer.step()",
        check=_zero_grad_missing,
        several_ranks=False,
    ),
    Rule(
        id="optimizer-not-prepared",
        severity="warning",
        why="it steps on every micro batch of an accumulation, on scaled gradients under fp16, and never under ZeRO",
        fix="give the optimizer to accelerator.prepare together with the model",
        check=_optimizer_not_prepared,
        several_ranks=False,
    ),
    Rule(
        id="model-not-prepared",
        severity="error",
        why="its gradients are never averaged between ranks: each rank trains a model of its own",
        fix="give the model to accelerator.prepare together with the optimizer, and train what it returns",
        check=_model_not_prepared,
    ),
)
