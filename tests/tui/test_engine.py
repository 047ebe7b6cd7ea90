"""The explorer's planner processes, for real: what they answer is what the command line answers."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from gpu_plan.planner.plan.document import Candidate
from gpu_plan.tui.app import ExplorerApp
from gpu_plan.tui.engine.client import PlannerProcess
from gpu_plan.tui.engine.messages import Ahead, Ask, Reply, packed, unpacked
from gpu_plan.tui.screens.drill import DrillScreen
from gpu_plan.tui.state import State
from tests.support.explorer import screen_text, settled

pytestmark = pytest.mark.asyncio
TINY = State(model="EleutherAI/pythia-70m", gpus="2xT4").trying("strategy", "fsdp").trying("micro-batch", "2")
PATIENCE = 1500


async def eventually(condition):
    """Waits for what another process does, however slow the machine is."""
    for _ in range(PATIENCE * 20):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("what was waited for never came")


class Both:
    """A replaying and a searching process, and everything that they said."""

    def __init__(self):
        self.replies: list[Reply] = []
        self.ends = []
        self.number = 0

    async def __aenter__(self):
        told = (self.replies.append, lambda kind, how: self.ends.append((kind, how)))
        self.replay, self.search = PlannerProcess("replay", *told), PlannerProcess("search", *told)
        await self.replay.start()
        await self.search.start()
        return self

    async def __aexit__(self, *_):
        await self.replay.stop()
        await self.search.stop()

    async def ask(self, where, kind, request):
        """All replies to one ask, the last of them final."""
        self.number += 1
        number, final = self.number, {"untraced", "traced", "found", "refused", "broken", "tensors", "lanes"}
        where.send(Ask(number=number, kind=kind, request=request))

        def mine():
            return [reply for reply in self.replies if reply.number == number]

        await eventually(
            lambda: any(r.kind in final or (r.picture is not None and r.picture.exact) for r in mine()) or self.ends
        )
        assert not self.ends
        return [reply for reply in mine() if reply.kind != "progress"]

    async def pictures(self, state):
        """Replies to a picture's ask, what it lacks traced first."""
        replies = await self.ask(self.replay, "picture", state.focus_request)
        if replies[-1].kind == "untraced":
            (traced,) = await self.ask(self.search, "trace", state.focus_request)
            if traced.parcel is None:
                return [traced]
            self.replay.send(traced.parcel)
            replies = await self.ask(self.replay, "picture", state.focus_request)
        return replies


@pytest.mark.slow
async def test_pictures_are_what_the_command_line_says():
    async with Both() as both:
        states, untraced = await both.ask(both.replay, "picture", TINY.focus_request)
        assert states.picture.states_only, "what model states alone decide comes before a trace is made"
        assert untraced.kind == "untraced"
        rough, exact = [reply.picture for reply in await both.pictures(TINY)]
        assert not rough.exact
        assert exact.exact
        states = (
            TINY,
            TINY.stepped("strategy", shown="fsdp"),
            TINY.trying("strategy", "zero2").trying("offload", "optimizer"),
            TINY.stepped("optimizer").stepped("micro-batch"),
            TINY.with_gpus("16xT4"),
            TINY.trying("micro-batch", "16").with_gpus("1xRTX-3060"),
        )
        for state in states:
            replies = await both.pictures(state)
            (whole,) = await both.ask(both.search, "document", state.focus_request)
            if replies[-1].kind == "refused":
                assert (whole.kind, whole.text) == ("refused", replies[-1].text)
                continue
            picture = replies[-1].picture
            assert whole.kind == "found", whole.text
            assert shown(picture.document) == shown(whole.document), state.focus_command
            assert picture.document.workload == whole.document.workload
            check_columns(picture)
            (tensors,) = await both.ask(both.replay, "tensors", state.focus_request)
            (lanes,) = await both.ask(both.replay, "lanes", state.focus_request)
            assert lanes.lanes
            by_category = dict.fromkeys(shown(picture.document).memory.at_peak.items(), 0)
            for line in tensors.tensors:
                by_category[line.category] += line.bytes
            assert by_category == shown(picture.document).memory.at_peak.items()
        await check_ahead(both)


async def check_ahead(both):
    """What is worked out before it is asked for is what is said when it is asked for."""
    state = TINY.trying("micro-batch", "4")
    both.number += 1
    both.replay.send(Ahead(number=both.number, rough=(state.focus_request,), exact=(state.focus_request,)))

    def early():
        return [reply for reply in both.replies if reply.kind == "ahead"]

    await eventually(lambda: len(early()) == 2 or both.ends)
    asked = await both.pictures(state)
    assert [(reply.of, reply.picture) for reply in early()] == [(state.focus_command, r.picture) for r in asked]


def shown(document) -> Candidate:
    """The one candidate of a pinned document; of a single one it is not asked whether others beat it, and its kinds of
    rank stand beside the picture."""
    (candidate,) = (*document.plans, *document.rejected)
    return replace(candidate, on_front=None, ranks=())


def check_columns(picture):
    """The drawn step peaks at the figure that stands beside it, made of the same categories."""
    memory, columns = shown(picture.document).memory, picture.columns
    top = columns.levels[columns.peak]
    assert sum(top) == max(map(sum, columns.levels)) == memory.peak_allocated_bytes
    assert dict(zip(columns.categories, top, strict=True)) == memory.at_peak.items()
    assert columns.phases[columns.peak] == memory.phase_of_peak


@pytest.mark.slow
async def test_refusals_and_deaths_are_told_in_words():
    async with Both() as both:
        for state, words in (
            (replace(TINY, gpus="8xBanana"), "Banana"),
            (replace(TINY, model="./no/such/folder"), "no/such/folder"),
            (TINY.with_option("precision", "bf8"), "bf8"),
        ):
            (reply,) = await both.ask(both.replay, "picture", state.focus_request)
            assert reply.kind == "refused"
            assert words in reply.text
        os.kill(both.replay.pid, signal.SIGKILL)
        await eventually(lambda: both.ends)
        assert both.ends == [("replay", "was killed by signal 9")]
        both.replay.send(Ask(number=99, kind="picture", request=TINY.focus_request))


@pytest.mark.slow
async def test_the_whole_explorer_on_real_processes():
    """First picture, a change that replays, one that traces, the drill, a killed process started again."""
    app = ExplorerApp(State(model="EleutherAI/pythia-70m", gpus="2xT4"), environment={})
    async with app.run_test(size=(120, 40)) as pilot:
        await eventually(lambda: settled(app))
        assert app.session.found is not None
        assert "best plan" in screen_text(app)
        best = app.session.found.best.strategy
        assert app.session.picture.document.best.strategy == best
        await pilot.press("m")
        await eventually(lambda: settled(app))
        assert app.scene().candidate.strategy.micro_batch_size == best.micro_batch_size * 2
        await pilot.press("l")
        await eventually(lambda: settled(app))
        assert not app.session.problem
        assert "--seq-len 4096" in app.session.state.command
        await pilot.press("d")
        await eventually(lambda: isinstance(app.screen, DrillScreen) and app.screen._branches)
        await pilot.pause()
        assert "At the peak: " in screen_text(app)
        await pilot.press("escape")
        os.kill(app._processes[0].pid, signal.SIGKILL)
        await eventually(lambda: "was killed by signal 9" in app.session.problem)
        await pilot.press("f5")
        await eventually(lambda: settled(app) and not app.session.problem)
        assert app.session.current


async def test_messages_travel_whole():
    reply = Reply(number=1, kind="progress", text="x" * 100_000)
    assert unpacked(packed(reply)[8:]) == reply
