"""Prints the explorer's screen as text, once everything has come: python -m benchmarks.explorer.screen [KEYS ...]"""

import asyncio
import sys

from benchmarks.explorer.keys import idle
from gpu_plan.tui.app import ExplorerApp
from gpu_plan.tui.state import State

MODEL, GPUS, SIZE = "meta-llama/Llama-3.1-8B", "8xH100", (100, 30)


async def main(keys: list[str]) -> None:
    """The screen after `keys`."""
    app = ExplorerApp(State(model=MODEL, gpus=GPUS), environment={})
    async with app.run_test(size=SIZE) as pilot:
        await asyncio.sleep(0.5)
        await idle(app)
        for key in keys:
            await pilot.press(key)
            await asyncio.sleep(0.2)
            await idle(app)
        await pilot.pause(0.5)
        for strip in app.screen._compositor.render_strips():
            print("".join(segment.text for segment in strip).rstrip())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
