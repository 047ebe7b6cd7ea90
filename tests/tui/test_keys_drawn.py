"""What a key costs the screen: nothing is marked, listed, drawn or laid out again that need not be."""

import gc
from itertools import pairwise

import numpy as np
import pytest
from rich.text import Text
from textual.app import App
from textual.widgets import DataTable

from gpu_plan.planner.trace.events import CATEGORIES
from gpu_plan.tui.engine.columns import columns
from gpu_plan.tui.engine.evaluate import Replays
from gpu_plan.tui.engine.kept.providers import KeptTraces, Providers
from gpu_plan.tui.engine.messages import Ahead, Ask, Reply
from gpu_plan.tui.session import Session
from gpu_plan.tui.state import State
from gpu_plan.tui.widgets.kept_table import KeptTable
from gpu_plan.tui.widgets.status import StatusView
from tests.support.explorer import Canned, app_of, lanes, settled, until
from tests.tui.test_ahead import STATE, Channel, answer

SIZE = (120, 40)


def session_of(clock, drawn):
    channel = Channel()
    session = Session(STATE, lambda: None, clock, drawn)
    session.connect(channel, Channel())
    answer(session, channel, exact=True)
    return session, channel


def test_a_picture_of_the_state_before_is_marked_only_where_it_stays():
    now = [0.0]
    session, channel = session_of(lambda: now[0], lambda then: then())
    session.change(STATE.stepped("micro-batch"))
    session.on_reply(Reply(number=channel.last(Ask).number, kind="progress", text="searching"))
    assert not session.stale, "the next picture comes at once"
    now[0] = 1.0
    assert session.stale
    answer(session, channel, exact=False)
    assert not session.stale
    session.change(STATE)
    assert session.current
    session.change(STATE.stepped("checkpointing", shown="none"))
    session.on_reply(Reply(number=channel.last(Ask).number, kind="untraced"))
    assert session.stale, "a trace takes its time"


def test_what_may_come_next_is_listed_once_the_picture_is_drawn():
    behind = []
    session, channel = session_of(lambda: 0.0, behind.append)
    assert not [message for message in channel.sent if isinstance(message, Ahead)]
    session.change(STATE.stepped("micro-batch"))
    for then in behind:
        then()
    assert not [message for message in channel.sent if isinstance(message, Ahead)], "another key came first"
    answer(session, channel, exact=True)
    behind[-1]()
    assert channel.last(Ahead).rough


def test_a_step_is_asked_for_behind_its_picture_and_forgotten_with_it():
    session, channel = session_of(lambda: 0.0, lambda then: then())
    session.change(STATE.stepped("micro-batch"))
    session.ask_lanes()
    assert channel.last(Ask).kind == "picture"
    answer(session, channel, exact=True)
    asked = next(message for message in channel.sent if isinstance(message, Ask) and message.kind == "lanes")
    session.on_reply(Reply(number=asked.number, kind="lanes", lanes=lanes()))
    assert session.lanes == lanes()
    session.undo()
    assert session.lanes is None
    session.on_reply(Reply(number=asked.number, kind="lanes", lanes=lanes()))
    assert session.lanes is None, "of a state that has been left"


class Tables(App):
    def compose(self):
        yield KeptTable(id="plans")


def filled(table, words):
    table.clear()
    for word in words:
        table.add_row(Text(word, style="bold"), Text(word * 2, justify="right"))


@pytest.mark.asyncio
async def test_rows_that_say_the_same_are_not_drawn_again_and_leave_no_garbage(monkeypatch):
    drawn = []
    plain = DataTable._render_line
    monkeypatch.setattr(DataTable, "_render_line", lambda self, y, *rest: drawn.append(y) or plain(self, y, *rest))
    app = Tables()
    async with app.run_test(size=(40, 10)) as pilot:
        table = app.query_one(KeptTable)
        table.add_columns(Text("plan"), Text("twice"))
        filled(table, ["ddp", "fsdp", "zero3"])
        await pilot.pause(0.1)
        widths = [column.content_width for column in table.ordered_columns]
        assert widths == [5, 10], "as wide as the longest cell of each"
        first = "\n".join(str(strip.text) for strip in table.render_lines(table.size.region))
        drawn.clear()
        filled(table, ["ddp", "fsdp", "zero3"])
        await pilot.pause(0.1)
        assert "\n".join(str(strip.text) for strip in table.render_lines(table.size.region)) == first
        assert not drawn
        filled(table, ["ddp", "hsdp", "zero3"])
        await pilot.pause(0.1)
        assert set(drawn) == {2}, "the head is line 0"
        gc.collect()
        for _ in range(20):
            filled(table, ["ddp", "fsdp", "zero3"])
            await pilot.pause()
        found = [thing for thing in gc.get_objects() if isinstance(thing, list) and len(thing) == 4]
        links = [link for link in found if link[0] is link[1] is link or isinstance(link[0], list)]
        assert len(links) < 1000, "caches that were emptied hold each other's links"


@pytest.mark.asyncio
async def test_what_stands_above_the_status_does_not_move_while_a_search_runs():
    app = app_of(Canned())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: settled(app))
        status = app.screen.query_one(StatusView)
        await until(pilot, lambda: "$ plan" in status.render().plain and status.rows == status.size.height)
        rows = status.rows
        app.session._begin("searching")
        app._show()
        assert "searching" in status.render().plain
        assert status.rows == rows


def test_columns_of_a_step_are_the_sums_of_its_events():
    state = State(model="meta-llama/Llama-3.1-8B", gpus="8xH100").trying("strategy", "fsdp").trying("micro-batch", "2")
    replays = Replays(Providers(KeptTraces))
    setup = replays._setup(state.focus_request)
    stream = setup.evaluator.judge(setup.family, setup.batch).stream
    blocks = stream.sizes(2)
    edges = np.unique(np.linspace(100, len(stream.event_sign), 40).astype(np.int64))
    found = columns(stream, blocks, edges=edges)
    live = np.zeros(len(CATEGORIES), dtype=np.int64)
    after = []
    for sign, tensor in zip(stream.event_sign.tolist(), stream.event_tensor.tolist(), strict=True):
        live[stream.category[tensor]] += sign * blocks[tensor]
        after.append(live.copy())
    highest = [max(range(a, b), key=lambda at: (int(after[at].sum()), -at)) for a, b in pairwise(edges.tolist())]
    assert found.levels == tuple(tuple(after[at].tolist()) for at in highest)
    assert sum(found.levels[found.peak]) == max(int(after[at].sum()) for at in highest)


def test_kinds_of_gpu_share_what_is_shipped_of_a_model():
    providers = Providers(KeptTraces)
    replays = Replays(providers)
    books = []
    for gpus in ("8xH100", "8xA100-80GB"):
        setup = replays._setup(
            State(model="meta-llama/Llama-3.1-8B", gpus=gpus).trying("strategy", "ddp").focus_request
        )
        books.append(setup.provider.inner._find_shipped_traces())
    assert books[0] is not None
    assert books[0] is books[1]


def test_only_the_picture_that_is_wanted_is_made():
    replays = Replays(Providers(KeptTraces))
    request = State(model="meta-llama/Llama-3.1-8B", gpus="8xH100").trying("strategy", "fsdp").focus_request
    each = list(replays.pictures(request))
    assert [(one.states_only, one.exact) for one in each][-2:] == [(False, False), (False, True)]
    assert list(replays.pictures(request, "first")) == each[-2:-1]
    assert next(replays.pictures(request, "exact")) == each[-1]
