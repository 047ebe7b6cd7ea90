"""The explorer driven without planner processes: answers come from hand-made documents."""

import asyncio
import math
from dataclasses import replace

from gpu_plan.planner.plan.document import PlanDocument, TensorLine
from gpu_plan.planner.plan.drawn.lanes import Lane, LaneSpan
from gpu_plan.tui.app import ExplorerApp
from gpu_plan.tui.engine.messages import Ahead, Columns, Picture, RankClass, Reply
from gpu_plan.tui.state import State
from tests.support.plan_example import llama_on_8xh100, sharded

STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
LINES = (
    TensorLine(bytes=6 * 2**30, count=32, category="activations", module="model.layers.*.mlp", operator="mul",
               shape=(2, 4096, 14336), dtype="bfloat16", phase="forward"),
    TensorLine(bytes=4 * 2**30, count=32, category="activations", module="model.layers.*.mlp", operator="silu",
               shape=(2, 4096, 14336), dtype="bfloat16", phase="forward", origin="train.py:88"),
    TensorLine(bytes=2 * 2**30, count=1, category="activations", module="", operator="_to_copy",
               shape=(2, 4096, 128256), dtype="float32", phase="forward"),
    TensorLine(bytes=3 * 2**30, count=291, category="parameters", module="model.layers.*", operator=None, shape=(),
               dtype="float32", phase="forward", basis="source"),
)  # fmt: skip


def columns(count=96):
    """A step whose activations rise and fall over standing parameters and optimizer state."""
    categories = ("parameters", "gradients", "optimizer_state", "activations")
    levels = []
    for at in range(count):
        rise = math.sin(math.pi * min(1.0, at / (count * 0.8)))
        levels.append((4 * 2**30, int(3 * 2**30 * at / count), 8 * 2**30, int(30 * 2**30 * rise)))
    phases = [
        "forward" if at < count * 0.4 else "backward" if at < count * 0.8 else "optimizer step" for at in range(count)
    ]
    peak = max(range(count), key=lambda at: sum(levels[at]))
    return Columns(categories=categories, levels=tuple(levels), phases=tuple(phases), peak=peak, events=20_000)


def picture(request, exact=True):
    """Figures of the configuration that a request pins: larger micro batches take more."""
    words = dict(request.words)
    name, micro = words.get("strategy", "ddp"), int(words.get("micro-batch", "1"))
    checkpointing = words.get("checkpointing", "none")
    activations = (1_000_000_000 if checkpointing == "full" else 8_000_000_000) * micro
    candidate = sharded(name, STAGES.get(name, 3), min(8, micro), checkpointing, activations, 2.0 * micro, 0.4)
    choice = replace(candidate.strategy, micro_batch_size=micro, offload=words.get("offload", "none"))
    candidate = replace(candidate, strategy=choice)
    document = llama_on_8xh100()
    lost = candidate.verdict == "no"
    if lost and candidate.reason is None:
        candidate = replace(candidate, reason="too much")
    alone = replace(
        document, command=request.command, plans=() if lost else (candidate,), rejected=(candidate,) if lost else ()
    )
    rank = RankClass(name="every rank", at_peak=(), peak_allocated_bytes=candidate.memory.peak_allocated_bytes)
    return Picture(document=alone, exact=exact, ranks=(rank,), columns=columns() if exact else None)


def lanes():
    """A step that waits for its first gather and its last reduction."""
    computed = (LaneSpan("forward", 0.01, 0.2), LaneSpan("backward", 0.22, 0.4), LaneSpan("optimizer", 0.65, 0.05))
    sent = (
        LaneSpan("all_gather", 0.0, 0.01),
        LaneSpan("all_gather", 0.06, 0.1),
        LaneSpan("reduce_scatter", 0.4, 0.1),
        LaneSpan("reduce_scatter", 0.62, 0.03),
    )
    return (Lane(name="compute", spans=computed), Lane(name="collectives", spans=sent))


class Canned:
    """Both planner processes of one application. `refuse` says what it refuses; `untraced` what it must trace first."""

    def __init__(self, document: PlanDocument | None = None, refuse=None, silent=False, picture=picture, search=None):
        self.document = document or llama_on_8xh100()
        self.picture = picture
        self.search = search or (lambda request: replace(self.document, command=request.command))
        self.refuse = refuse or (lambda request: None)
        self.silent = silent
        self.asked, self.ahead = [], []
        self.session = None

    async def open(self, session):
        self.session = session
        session.connect(self, self)
        return []

    def send(self, message):
        if isinstance(message, Ahead):
            self.ahead.append(message)
            return
        self.asked.append(message)
        if not self.silent:
            asyncio.get_running_loop().call_soon(self.answer, message)

    def answer(self, ask):
        refusal = self.refuse(ask.request)
        if refusal is not None:
            self.session.on_reply(Reply(number=ask.number, kind="refused", text=refusal))
        elif ask.kind == "picture":
            for exact in (False, True):
                self.session.on_reply(
                    Reply(number=ask.number, kind="picture", picture=self.picture(ask.request, exact))
                )
        elif ask.kind == "tensors":
            self.session.on_reply(Reply(number=ask.number, kind="tensors", tensors=LINES))
        elif ask.kind == "lanes":
            self.session.on_reply(Reply(number=ask.number, kind="lanes", lanes=lanes()))
        elif ask.kind == "search":
            self.session.on_reply(Reply(number=ask.number, kind="found", document=self.search(ask.request)))
        elif ask.kind == "document":
            asked = self.search(ask.request) if ask.request.advise else self.picture(ask.request).document
            self.session.on_reply(Reply(number=ask.number, kind="found", document=asked))


LLAMA_STATE = State(model="meta-llama/Llama-3.1-8B", gpus="8xH100", given=(("global-batch", "64"),))


def app_of(canned, state=LLAMA_STATE, **options):
    """An explorer on canned answers."""
    options.setdefault("environment", {})
    return ExplorerApp(state, engines=canned.open, **options)


async def until(pilot, condition, tries=60_000):
    """Lets the application work until something holds; fails where it never does."""
    for _ in range(tries):
        if condition():
            await pilot.pause()
            return
        await pilot.pause(0.01)
    raise AssertionError("what was waited for never came")


def settled(app):
    """Whether everything that was asked for is shown."""
    session = app.session
    return (
        app._mounted
        and session.busy is None
        and not session.searching
        and (session.current or bool(session.problem))
        and not app.plans.behind
    )


def screen_text(app):
    """What stands on the screen, without trailing blanks."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"
