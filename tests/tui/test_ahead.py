"""What is worked out before it is asked for: which states, and what becomes of their pictures."""

import io
from contextlib import contextmanager
from dataclasses import replace

import pytest

from gpu_plan.tui.ahead import Move, moved, neighbours
from gpu_plan.tui.engine import evaluate
from gpu_plan.tui.engine.breaks import Breaks, StaleError
from gpu_plan.tui.engine.child import Inbox, ReplayWorker
from gpu_plan.tui.engine.kept.providers import UntracedError
from gpu_plan.tui.engine.kept.streams import StreamCache
from gpu_plan.tui.engine.messages import Ahead, Ask, Reply, write
from gpu_plan.tui.session import Session
from gpu_plan.tui.state import State
from tests.support.explorer import LLAMA_STATE, picture

STATE = LLAMA_STATE.trying("strategy", "fsdp").trying("micro-batch", "2")


def value(name):
    return {"offload": "none", "checkpointing": "none", "optimizer": "adamw"}.get(name, "-")


def test_neighbours_are_one_key_away_and_the_last_move_comes_first():
    last = Move("checkpointing", False)
    found = neighbours(STATE, value, last)
    first, second = list(found)[:2]
    assert first == STATE.stepped("checkpointing", False, shown="none")
    assert second == STATE.stepped("checkpointing", True, shown="none")
    assert STATE not in found
    assert STATE.more_gpus(False) in found
    for state, move in found.items():
        assert moved(STATE, move, value) == state
    assert not {move.name for move in found.values()} & {"attention", "peft"}
    assert {move.forward for move in found.values()} == {True, False}


class Channel:
    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)

    def last(self, kind):
        return next(message for message in reversed(self.sent) if isinstance(message, kind))


def session_with_picture():
    """A session in whose picture STATE stands, and what it sent."""
    channel = Channel()
    session = Session(STATE, lambda: None)
    session.connect(channel, Channel())
    answer(session, channel, exact=True)
    return session, channel


def answer(session, channel, exact):
    ask = channel.last(Ask)
    session.on_reply(Reply(number=ask.number, kind="picture", picture=picture(ask.request, exact)))


def ahead(session, state, exact):
    made = picture(state.focus_request, exact)
    session.on_reply(Reply(number=0, kind="ahead", picture=made, of=state.focus_command))


def test_a_complete_picture_is_followed_by_a_look_ahead_and_what_comes_of_it_is_shown_at_once():
    session, channel = session_with_picture()
    wanted = channel.last(Ahead)
    assert wanted.number > channel.last(Ask).number == wanted.wanted, "its kinds of rank may still come"
    after = STATE.stepped("micro-batch")
    assert after.focus_request in wanted.rough
    shown = session.picture
    ahead(session, after, exact=True)
    assert session.picture is shown, "nothing in view changes"
    asked = len([message for message in channel.sent if isinstance(message, Ask)])
    session.change(after)
    assert session.current
    assert session.picture.document.command == after.focus_command
    assert len([message for message in channel.sent if isinstance(message, Ask)]) == asked
    assert channel.last(Ahead).wanted == 0, "nothing that was asked for is still in view"
    assert next(iter(channel.last(Ahead).exact)) == after.stepped("micro-batch").focus_request, "the same key again"


def test_sums_made_ahead_are_shown_while_the_exact_picture_is_asked_for():
    session, channel = session_with_picture()
    after = STATE.stepped("micro-batch")
    ahead(session, after, exact=False)
    session.change(after)
    assert session.picture_of == after.focus_command
    assert not session.picture.exact
    assert channel.last(Ask).request == after.focus_request
    answer(session, channel, exact=True)
    assert session.current


def test_an_exact_picture_is_not_replaced_by_sums():
    session, _ = session_with_picture()
    ahead(session, STATE, exact=False)
    session.look()
    assert session.picture.exact


def test_a_picture_on_its_way_is_not_taken_for_that_of_a_state_that_was_kept():
    session, channel = session_with_picture()
    session.change(STATE.stepped("micro-batch"))
    late = channel.last(Ask)
    session.undo()
    kept = session.picture
    assert session.current
    session.on_reply(Reply(number=late.number, kind="picture", picture=picture(late.request)))
    assert session.picture is kept
    assert session.picture.document.command == STATE.focus_command


def test_what_stands_on_the_shelf_takes_no_more_than_its_room():
    class Plan:
        other_ranks = ()

        def __init__(self, size):
            empty = type("Array", (), {"nbytes": 0})
            whole = type("Array", (), {"nbytes": size})
            self.stream = type("Stream", (), dict.fromkeys(
                ("event_sign", "event_tensor", "event_segment", "event_in_backward", "per_sample", "cuda_stream",
                 "category"), empty) | {"fixed": whole, "labels": []})  # fmt: skip

    kept = StreamCache(room=100)
    for name, size in (("a", 40), ("b", 40), ("c", 10)):
        kept.put((name,), Plan(size))
    assert kept.get(("a",)) is not None
    kept.put(("d",), Plan(30))
    assert kept.get(("b",)) is None, "not used for longest"
    assert kept.get(("a",)) is not None
    kept.put(("e",), Plan(500))
    assert len(kept) == 1
    assert kept.get(("e",)) is not None


@pytest.mark.parametrize(("wanted", "left"), [(1, False), (0, True)])
def test_a_picture_on_the_screen_is_completed_before_what_may_come_next(wanted, left):
    """Its kinds of rank come last, behind what the screen asks ahead once it is exact."""
    source = io.BytesIO()
    ask = Ask(number=1, kind="picture", request=State(model="m", gpus="8xH100").focus_request)
    for message in (ask, Ahead(number=2, wanted=wanted, rough=(), exact=())):
        write(source, message)
    source.seek(0)
    inbox = Inbox(source, lambda: None)
    assert [inbox.take() for _ in range(3)][-1] is None
    assert inbox.is_stale(ask) is left


class Evaluated:
    """Says what was asked of it; each layout is prepared in two pieces."""

    def __init__(self):
        self.did = []

    def of(self, request):
        return self

    def pictures(self, request, wanted):
        self.did.append((wanted, request.command))
        yield picture(request, exact=wanted == "exact")

    def prepared(self, request):
        for piece in range(2):
            self.did.append((f"piece {piece}", request.command))
            yield
        raise UntracedError(())


def worker(*requests):
    """One that is to look ahead to these."""
    made = ReplayWorker(lambda reply: None, None, Breaks())
    made._evaluations = Evaluated()
    made.take(Ahead(number=1, rough=requests, exact=requests, prepared=requests))
    return made, made._evaluations.did


def test_what_takes_longest_is_prepared_behind_sums_and_before_exact_pictures():
    one, other = (STATE.trying("micro-batch", size).focus_request for size in ("4", "8"))
    made, did = worker(one, other)
    while made.go_ahead():
        pass
    pieces = [(f"piece {piece}", request.command) for request in (one, other) for piece in range(2)]
    of_each = {kind: [(kind, request.command) for request in (one, other)] for kind in ("first", "exact")}
    assert did == [*of_each["first"], *pieces, *of_each["exact"]]


def test_what_is_begun_is_gone_on_with_behind_the_next_key():
    one, other = (STATE.trying("micro-batch", size).focus_request for size in ("4", "8"))
    made, did = worker(one)
    while ("piece 0", one.command) not in did:
        made.go_ahead()
    made.take(Ahead(number=2, rough=(), exact=(), prepared=(other,)))
    did.clear()
    while made.go_ahead():
        pass
    assert did == [("piece 1", one.command), ("piece 0", other.command), ("piece 1", other.command)]


def test_layouts_that_were_waited_for_are_to_be_prepared():
    session, channel = session_with_picture()
    after = STATE.stepped("micro-batch")
    assert after.focus_request in channel.last(Ahead).prepared
    made = replace(picture(after.focus_request, exact=False), states_only=True)
    session.on_reply(Reply(number=0, kind="ahead", picture=made, of=after.focus_command))
    summed = STATE.stepped("micro-batch", False)
    ahead(session, summed, exact=False)
    session._look_ahead()
    assert after.focus_request in channel.last(Ahead).prepared
    assert after.focus_request not in channel.last(Ahead).rough
    assert summed.focus_request not in channel.last(Ahead).prepared


def test_a_newer_question_leaves_what_a_picture_takes_longest_for_as_it_is(monkeypatch):
    """What is begun is held until the next one has begun, which may go on with it; broken off is only what lies
    between two pieces."""
    left = []

    @contextmanager
    def breakable():
        if left:
            raise StaleError
        yield

    def pieces(setup):
        for piece in range(3):
            did.append(piece)
            yield
            left.extend([piece] * (piece == setup))

    did = []
    monkeypatch.setattr(evaluate, "_pieces", pieces)
    replays = evaluate.Replays(None, breakable=breakable)
    with pytest.raises(StaleError):
        replays._walk(1)
    begun = replays._begun
    assert did == [0, 1, 2]
    left.clear()
    assert list(begun) == [], "its pieces are still to be had"
    replays._walk(None)
    assert replays._begun is not begun
    assert list(replays._begun) == []
