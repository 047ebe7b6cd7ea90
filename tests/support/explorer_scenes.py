"""The explorer's screens at fixed sizes, as text. `python -m tests.support.explorer_scenes` writes the golden files."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.tui.state import State
from tests.support.explorer import LLAMA_STATE, Canned, app_of, screen_text, settled, until
from tests.support.explorer_jobs import (
    GENERATION_STATE,
    SCRIPT_STATE,
    generation_document,
    generation_picture,
    on_known_nodes,
)
from tests.support.plan_example import nothing_fits

FOLDER = Path(__file__).parents[1] / "golden" / "explorer"
LONG = State(model="organisation/" + "very-long-name-" * 12 + "8B", gpus="8xH100")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One screen: its size, its keys, and how the explorer was started."""

    size: tuple[int, int] = (120, 40)
    keys: tuple[str, ...] = ()
    state: State = LLAMA_STATE
    ascii_only: bool = False
    readonly: bool = False
    no_colour: bool = False
    made: str = "fits"
    """Which answers: `fits`, `nothing_fits`, `generation`, or `known_nodes`, whose RAM is known."""


SHOTS = {
    "narrow": Shot(size=(80, 24)),
    "usual": Shot(),
    "wide": Shot(size=(200, 60)),
    "ascii": Shot(size=(80, 24), ascii_only=True),
    "no_colour": Shot(size=(100, 30), no_colour=True),
    "generation": Shot(size=(100, 30), state=GENERATION_STATE, keys=("k",), made="generation"),
    "script": Shot(size=(100, 34), state=SCRIPT_STATE, made="known_nodes"),
    "dies": Shot(keys=("m", "m", "m")),
    "nothing_fits": Shot(made="nothing_fits"),
    "long_name": Shot(size=(80, 24), state=LONG),
    "drill": Shot(keys=("d", "enter")),
    "streams": Shot(keys=("j",)),
    "compare": Shot(keys=("v", "m", "v")),
    "form": Shot(keys=("e",)),
    "export": Shot(keys=("x",)),
    "help": Shot(size=(80, 24), keys=("question_mark",), readonly=True),
}

ANSWERS = {
    "fits": Canned,
    "nothing_fits": lambda: Canned(document=nothing_fits()),
    "generation": lambda: Canned(picture=generation_picture, search=generation_document),
    "known_nodes": lambda: Canned(picture=on_known_nodes),
}


async def taken(shot: Shot) -> str:
    """The text on the screen after the keys."""
    canned = ANSWERS[shot.made]()
    environment = {"NO_COLOR": "1"} if shot.no_colour else {}
    app = app_of(canned, shot.state, ascii_only=shot.ascii_only, readonly=shot.readonly, environment=environment)
    async with app.run_test(size=shot.size, notifications=False) as pilot:
        await until(pilot, lambda: settled(app))
        for key in shot.keys:
            await pilot.press(key)
            await until(pilot, lambda: settled(app))
        app.screen.set_focus(None)
        return await still(pilot, app)


async def still(pilot, app) -> str:
    """The screen once it moves no more: its footer is there, and five looks see the same."""
    await until(pilot, lambda: app.screen.query("FooterKey") or not app.screen.query("Footer"))
    seen = []
    while len(seen) < 5 or len(set(seen[-5:])) > 1:
        assert len(seen) < 500, "the screen never came to rest"
        await pilot.pause(0.02)
        seen.append(screen_text(app))
    return seen[-1]


async def _write() -> None:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for name, shot in SHOTS.items():
        (FOLDER / f"{name}.txt").write_text(await taken(shot), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(_write())
