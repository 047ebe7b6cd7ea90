"""A factory's process, `-m gpu_plan.planner.trace.walled.child QUESTIONS ANSWERS`: builds and traces it behind walls.

Both are descriptors of pipes. It ends with the end of the questions.
"""

import gc
import json
import os
import sys
from dataclasses import asdict
from typing import NoReturn

from gpu_plan.planner.errors import NotBuiltError, PlanError, UnreachableError, UsageError
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.neighbours import admit
from gpu_plan.planner.plan.codec import decode, load_object
from gpu_plan.planner.trace.storage import dump
from gpu_plan.planner.trace.walled.frames import Ask, Opening, error, receive, send
from gpu_plan.planner.walls.behind import in_words
from gpu_plan.planner.walls.guest import NoWallsError, enter, quiet

_KINDS = {UsageError: "usage", UnreachableError: "unreachable", NotBuiltError: "not built"}


def main(words: list[str]) -> NoReturn:
    questions, answers = int(words[0]), int(words[1])

    def read(size: int) -> bytes:
        content = b""
        while len(content) < size and (piece := os.read(questions, size - len(content))):
            content += piece
        return content

    first = receive(read)
    assert first is not None
    opening = decode(Opening, load_object(first[1], "the question"), "the question")
    os.chdir(opening.directory)
    admit(None)
    sys.path[:] = dict.fromkeys([*sys.path, *opening.path])
    if not _behind(opening, questions, answers):
        os._exit(0)
    try:
        gc.disable()  # nothing that is imported becomes garbage: a tenth of the time would be spent looking
        from gpu_plan.planner.trace.session import TracingSession

        gc.enable()
        source = ModelSource(kind="factory", id=opening.factory, config=None, digest=opening.digest)
        session = TracingSession(source, opening.device, opening.attention, opening.adapter)
        while (message := receive(read)) is not None:
            asked = decode(Ask, load_object(message[1], "the question"), "the question")
            if asked.variant is None:
                send(answers, b"J", json.dumps(asdict(session.spec())).encode())
            else:
                try:
                    send(answers, b"T", dump(session.trace(asked.variant, asked.micro_batch)))
                except PlanError as problem:
                    send(answers, b"E", _refusal(problem))
    except PlanError as problem:
        send(answers, b"E", _refusal(problem))
    finally:
        os._exit(0)


def _behind(opening: Opening, questions: int, answers: int) -> bool:
    try:
        walls = enter(
            opening.scratch,
            (questions, answers),
            processes=opening.processes,
            written_bytes=opening.written_bytes,
            unwalled=opening.unwalled,
        )
    except NoWallsError as problem:
        told = f"{problem}; a model by its hub id, folder or config.json runs nothing of it"
        send(answers, b"E", error("input", told))
        return False
    send(answers, b"J", json.dumps(in_words(walls, "the factory")).encode())
    quiet(walls, opening.scratch)
    return True


def _refusal(problem: PlanError) -> bytes:
    return error(_KINDS.get(type(problem), "input"), str(problem))


if __name__ == "__main__":
    main(sys.argv[1:])
