"""What every rank does that one should, and what one does that every rank must."""

import ast
from collections.abc import Iterator

from gpu_plan.executor.doctor.flow import Flow
from gpu_plan.executor.doctor.flow import values as v
from gpu_plan.executor.doctor.flow.events import MAIN_ONLY, MAIN_SOME, OTHERS_ONLY, Call, Context, Leave, Test
from gpu_plan.executor.doctor.intent import Intent
from gpu_plan.executor.doctor.rules.common import is_collective, is_distributed, is_plain_backward, text, wraps_models
from gpu_plan.executor.doctor.rules.rule import Hit, Rule

_FILES = frozenset({"save_pretrained", "save"})
_ONE_RANK = frozenset({MAIN_ONLY, MAIN_SOME, OTHERS_ONLY})
_SHARED_ONLY = frozenset({"save_state", "get_state_dict", "save_model"})
"""Collective where the model is sharded; elsewhere one rank may do them alone."""


def _guarded(context: Context) -> bool:
    return bool(context.guards & _ONE_RANK) or context.local


def _start(flow: Flow) -> int:
    """Index of the first event at which the script knows of its ranks."""
    for index, event in enumerate(flow.events):
        if isinstance(event, Call) and (event.result.kind == "accelerator" or event.method == "init_process_group"):
            return index
    return 0


def _prints(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if not is_distributed(flow):
        return
    seen: dict[str, int] = {}
    first: dict[str, int] = {}
    for event in flow.events[_start(flow) :]:
        if not isinstance(event, Call) or event.name != "print" or not event.context.loops:
            continue
        if _guarded(event.context) or _speaks_of_rank(event):
            continue
        seen[event.context.function] = seen.get(event.context.function, 0) + 1
        first.setdefault(event.context.function, event.line)
    for function, line in first.items():
        more = f", and {seen[function] - 1} more there" if seen[function] > 1 else ""
        where = f" in {function}()" if function else ""
        yield Hit(line=line, what=f"print inside a loop{where}{more}")


def _speaks_of_rank(call: Call) -> bool:
    """A line that says which rank it comes from is meant to come from each."""
    words = ("rank", "process", "device", "worker")
    return any(word in ast.unparse(argument).lower() for argument in call.node.args for word in words)


def _saves(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if not is_distributed(flow):
        return
    for event in flow.events[_start(flow) :]:
        if not isinstance(event, Call) or event.method not in _FILES or _guarded(event.context):
            continue
        if event.name == "torch.save":
            if not _path_has_rank(event):
                yield Hit(line=event.line, what=f"{text(event.node)} by every rank")
        elif event.method == "save_pretrained" and event.receiver.kind == "model":
            told = event.keyword("is_main_process")
            if told is None and event.keyword("save_function") is None and not _path_has_rank(event):
                yield Hit(line=event.line, what=f"{text(event.node)} by every rank")


def _path_has_rank(call: Call) -> bool:
    paths = call.arguments[1:] if call.name == "torch.save" else call.arguments
    values = [*paths, *call.keywords.values()]
    return any(v.all_marks(value) & {v.PER_RANK, v.LOCAL} for value in values)


def _collective_apart(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if not is_distributed(flow):
        return
    for call in flow.calls:
        guards = call.context.guards
        if not is_collective(call) or not guards & {MAIN_ONLY, OTHERS_ONLY}:
            continue
        what = f"{text(call.node)} under a test that only some ranks pass"
        if call.method not in _SHARED_ONLY or intent.shards_model:
            yield Hit(line=call.line, what=what)
        elif call.method == "save_state":
            why = "under FSDP and ZeRO all ranks save a part: the job hangs; under DDP the others' random state is lost"
            yield Hit(
                line=call.line,
                what=what,
                severity="warning",
                why=why,
                fix="call it on every rank; it writes what each has to",
            )
        else:
            why = "under FSDP and ZeRO-3 all ranks give their part: the job hangs; under DDP it works"
            yield Hit(line=call.line, what=what, severity="warning", why=why)


def _trainer_apart(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls_of("save_model", "train", "evaluate", "predict"):
        if call.receiver.kind != "trainer" or not call.context.guards & {MAIN_ONLY, OTHERS_ONLY}:
            continue
        mild = call.method == "save_model" and not intent.shards_model
        what = f"{text(call.node)} under a test that only some ranks pass"
        yield Hit(line=call.line, what=what, severity="warning" if mild else "error")


def _as_many(met: list[Call], local: Test, line: int) -> bool:
    """Whether the ranks that skip the rest of a loop at `line` have made as many collectives under their own test."""
    own = sum(call.line < line and any(test.node is local.node for test in call.context.tests) for call in met)
    return own >= sum(call.line > line for call in met)


def _leaves_alone(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if not is_distributed(flow):
        return
    meeting: dict[ast.stmt, list[Call]] = {}
    wrapped = wraps_models(flow)
    for call in flow.calls:
        if is_collective(call) or (wrapped and is_plain_backward(call)):
            for loop in call.context.loops:
                meeting.setdefault(loop.node, []).append(call)
    for event in flow.events:
        if not isinstance(event, Leave):
            continue
        context = event.context
        mine = context.loops[context.first_loop :]
        if not mine:
            continue
        left = mine if isinstance(event.node, ast.Return) else mine[-1:]
        tests = context.tests[left[0].tests :]
        local = next((test for test in tests if test.local), None)
        if local is None:
            continue
        met = [call for loop in left for call in meeting.get(loop.node, ())]
        if isinstance(event.node, ast.Continue) and _as_many(met, local, event.node.lineno):
            continue
        if any(loop.node in meeting for loop in left):
            word = type(event.node).__name__.lower()
            yield Hit(
                line=event.node.lineno, what=f"{word} under `{text(local.node)}`, which ranks may answer differently"
            )


RULES = (
    Rule(
        id="print-on-every-rank",
        severity="note",
        why="each line comes once per rank",
        fix="write accelerator.print(...), or print under `if accelerator.is_main_process:`",
        check=_prints,
    ),
    Rule(
        id="save-on-every-rank",
        severity="warning",
        why="ranks write the same file at the same time: it may be torn, and is written N times",
        fix="save under `if accelerator.is_main_process:` what get_state_dict gave all ranks, or use accelerator.save",
        check=_saves,
    ),
    Rule(
        id="collective-on-some-ranks",
        severity="error",
        why="the ranks that make the call wait for those that never will: the job hangs",
        fix="make the call on every rank, and keep only the writing and printing under the test",
        check=_collective_apart,
    ),
    Rule(
        id="trainer-on-some-ranks",
        severity="error",
        why="the Trainer's methods meet on all ranks (saving does where the model is sharded): the job hangs",
        fix="call it on every rank: it writes on one only",
        check=_trainer_apart,
    ),
    Rule(
        id="rank-leaves-loop-alone",
        severity="error",
        why="one rank leaves or skips while the others wait for it in the next collective: the job hangs",
        fix="let all ranks decide together: accelerator.set_trigger() where the condition holds, "
        "then `if accelerator.check_trigger(): break`",
        check=_leaves_alone,
    ),
)
