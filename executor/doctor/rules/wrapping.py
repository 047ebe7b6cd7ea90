"""Models as they are wrapped: what may be asked of them, how they are saved, what comes first."""

import ast
from collections.abc import Iterator

from gpu_plan.executor.doctor.flow import Flow
from gpu_plan.executor.doctor.flow import values as v
from gpu_plan.executor.doctor.flow.values import Value
from gpu_plan.executor.doctor.intent import Intent
from gpu_plan.executor.doctor.rules.common import text
from gpu_plan.executor.doctor.rules.rule import Hit, Rule
from gpu_plan.planner.strategy.traits import Fault

_NOT_FORWARDED = frozenset(
    {
        "generate", "config", "generation_config", "push_to_hub", "gradient_checkpointing_enable",
        "enable_input_require_grads",
        "resize_token_embeddings", "get_input_embeddings", "num_parameters",
        "print_trainable_parameters",
        "enable_gradient_checkpointing", "tie_weights", "add_tag",
    }
)  # fmt: skip


def _bare(value: Value) -> bool:
    """A model as `prepare` returned it, not unwrapped in any branch."""
    return value.kind == "model" and value.has(v.PREPARED) and not value.marks & {v.UNWRAPPED, v.WRAPPED}


def _after_compile(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls:
        if call.receiver.kind == "accelerator" and call.method in {"prepare", "prepare_model"}:
            for value in v.flat(call.result):
                if value.kind == "model" and value.has(v.COMPILED):
                    severe = intent.breaks_on(Fault.COMPILED_FIRST)
                    yield Hit(
                        line=call.line,
                        what=f"{text(call.node)} wraps a compiled model",
                        severity="error" if severe else None,
                    )


def _wrapped_after_compile(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls:
        wraps = call.method in {"DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP"}
        if wraps and call.arguments and call.arguments[0].has(v.COMPILED):
            yield Hit(line=call.line, what=f"{text(call.node)} wraps a compiled model")


def _save_wrapped(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls:
        if call.method == "save_pretrained" and _bare(call.receiver) and call.keyword("state_dict") is None:
            # FSDP2 and tensor parallelism keep the model's own class: there it is no missing attribute.
            own_class = "accelerate.parallelism_config.ParallelismConfig" in flow.imports
            severe = not own_class and (intent.strategy is None or intent.breaks_on(Fault.SAVES_WRAPPED))
            yield Hit(
                line=call.line, what=f"{text(call.node)} on the wrapped model", severity="error" if severe else None
            )
        elif (call.name == "torch.save" or call.method == "save") and call.arguments:
            saved = [leaf for leaf in v.flat(call.arguments[0]) if leaf.kind in {"state_dict", "model"}]
            if any(leaf.has(v.PREPARED) and not leaf.has(v.UNWRAPPED) and leaf.kind == "state_dict" for leaf in saved):
                severe = bool(intent.shards_model)
                yield Hit(
                    line=call.line,
                    what=f"{text(call.node)} saves the state of the wrapped model",
                    severity="error" if severe else None,
                )


def _module_access(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for access in flow.accesses:
        if access.node.attr != "module" or not _bare(access.receiver):
            continue
        asked = any(_asks_for_wrapper(test.node) for test in access.context.tests)
        if not asked and not _asked_inline(flow, access.node):
            yield Hit(line=access.node.lineno, what=f"{text(access.node)} on a prepared model")


def _asks_for_wrapper(test: ast.expr) -> bool:
    words = ast.unparse(test)
    return any(
        word in words
        for word in ("hasattr", "isinstance", "num_processes", "distributed_type", "world_size", "distributed")
    )


def _asked_inline(flow: Flow, node: ast.Attribute) -> bool:
    """Whether the access stands in `a.module if hasattr(a, 'module') else a`."""
    return id(node) in flow.chosen


def _not_forwarded(flow: Flow, intent: Intent) -> Iterator[Hit]:
    seen: set[int] = set()
    for access in flow.accesses:
        if access.node.attr not in _NOT_FORWARDED or not _bare(access.receiver):
            continue
        asked = any(_asks_for_wrapper(test.node) for test in access.context.tests) or _asked_inline(flow, access.node)
        if not asked and access.node.lineno not in seen:
            seen.add(access.node.lineno)
            severe = intent.breaks_on(Fault.ASKS_WRAPPER)
            yield Hit(
                line=access.node.lineno,
                what=f"{text(access.node)} on a prepared model",
                severity="error" if severe else None,
            )


def _prepared_apart(flow: Flow, intent: Intent) -> Iterator[Hit]:
    made: dict[int, frozenset[int]] = flow.optimizer_sources
    together: set[tuple[int, int]] = set()
    calls = []
    for call in flow.calls:
        if call.receiver.kind == "accelerator" and call.method.startswith("prepare"):
            leaves = v.flat(call.result)
            models = {origin for leaf in leaves if leaf.kind == "model" for origin in leaf.origins}
            optimizers = {origin for leaf in leaves if leaf.kind == "optimizer" for origin in leaf.origins}
            together |= {(model, optimizer) for model in models for optimizer in optimizers}
            calls.append((call, models, optimizers))
    for call, models, optimizers in calls:
        for optimizer in optimizers if not models else ():
            sources = made.get(optimizer, frozenset())
            apart = sources & flow.prepared
            if apart and not any((model, optimizer) in together for model in sources):
                severe = intent.breaks_on(Fault.PREPARED_APART)
                what = f"{text(call.node)} prepares an optimizer apart from its model"
                yield Hit(line=call.line, what=what, severity="error" if severe else None)


def _optimizer_before_wrap(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for position, call in enumerate(flow.calls):
        if call.method not in {"FullyShardedDataParallel", "FSDP"} or not call.arguments:
            continue
        if (kept := call.keyword("use_orig_params")) is not None and text(kept) == "True":
            continue
        for before in flow.calls[:position]:
            sources = flow.optimizer_sources.get(id(before.node), frozenset())
            if sources & call.arguments[0].origins:
                what = f"{text(before.node)} is made before {text(call.node)} wraps the model"
                yield Hit(line=before.line, what=what)


def _result_dropped(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls:
        if call.receiver.kind == "accelerator" and call.method == "prepare" and call.dropped and call.node.args:
            kinds = {leaf.kind for leaf in v.flat(call.result)}
            if kinds & {"model", "loader", "optimizer"}:
                yield Hit(line=call.line, what=f"{text(call.node)}: what it returns is dropped")


RULES = (
    Rule(
        id="prepare-after-compile",
        severity="warning",
        why="the graph was set before the wrapper's hooks: DDP cannot overlap its buckets, FSDP cannot wrap the blocks",
        fix="prepare first and compile after, or let Accelerate compile (--dynamo_backend inductor)",
        check=_after_compile,
    ),
    Rule(
        id="wrap-after-compile",
        severity="warning",
        why="the graph was set before the wrapper's hooks: DDP cannot overlap its buckets, FSDP cannot wrap the blocks",
        fix="wrap first and compile the wrapped model",
        check=_wrapped_after_compile,
    ),
    Rule(
        id="save-wrapped-model",
        severity="warning",
        why="names carry the wrapper's `module.`, under FSDP and ZeRO-3 it is a shard, and DDP has no save_pretrained",
        fix="save accelerator.unwrap_model(model) with state_dict=accelerator.get_state_dict(model)",
        check=_save_wrapped,
    ),
    Rule(
        id="module-of-wrapper",
        severity="warning",
        why="with one process, and under FSDP2, there is no wrapper and no `.module`: AttributeError",
        fix="write accelerator.unwrap_model(model)",
        check=_module_access,
        several_ranks=False,
    ),
    Rule(
        id="attribute-of-wrapped-model",
        severity="warning",
        why="DistributedDataParallel does not pass it on: AttributeError as soon as there are two processes",
        fix="write accelerator.unwrap_model(model), or read it before prepare",
        check=_not_forwarded,
    ),
    Rule(
        id="prepared-apart",
        severity="warning",
        why="FSDP2 and ZeRO refuse it, and under FSDP1 the optimizer keeps the old parameters: nothing is trained",
        fix="give model and optimizer to one accelerator.prepare call",
        check=_prepared_apart,
    ),
    Rule(
        id="optimizer-before-wrap",
        severity="error",
        why="FSDP flattens and shards the parameters; the optimizer keeps the old ones: nothing is trained",
        fix="wrap the model first, then make the optimizer of the wrapped model's parameters",
        check=_optimizer_before_wrap,
    ),
    Rule(
        id="prepare-result-dropped",
        severity="error",
        why="prepare returns the wrapped objects; the ones that were given stay unwrapped, and ranks never meet",
        fix="assign the result: model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        check=_result_dropped,
    ),
)
