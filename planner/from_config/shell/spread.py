"""How a command spreads the script that it starts: Accelerate's configuration beside the script's own arguments.

transformers training_args.py (__post_init__: bf16 and fp16 stand before accelerate's mixed precision), accelerate
commands/launch.py.
"""

from gpu_plan.planner.from_config.formats import accelerate
from gpu_plan.planner.from_config.reading import Reading
from gpu_plan.planner.from_config.shell.launched import Launched
from gpu_plan.planner.from_config.table import Table
from gpu_plan.planner.visible import visible


class Spread:
    """What a launcher says. `before` the script's options are read, `after` they were."""

    def __init__(self, reading: Reading, launched: Launched) -> None:
        self.reading, self.launched = reading, launched
        self.inner = Reading(
            table=Table(launched.launcher, launched.launcher_file),
            fetch=reading.fetch,
            asked=reading.asked,
            otherwise=reading.otherwise,
        )

    def before(self) -> None:
        """How the model is spread, which other keys are read by."""
        if self.launched.launcher:
            accelerate.read(self.inner)
            for key, said in self.inner.said.items():
                if key not in _ITS_OWN:
                    self.reading.say(key, said.value, said.source, setting=said.setting)

    def after(self) -> None:
        """What stands behind the script's own words: its mixed precision, and how many processes."""
        reading, inner = self.reading, self.inner
        reading.approximate(
            f"{visible(self.launched.script)}: planned as the library's own trainer runs it, with its defaults for what"
            " the command leaves out; `plan SCRIPT --gpus SPEC -- ARGS` captures what the script itself does"
        )
        if self.launched.launcher:
            own, said = reading.said.get("precision"), inner.said.get("precision")
            if said is not None and (own is None or "default" in own.source):
                reading.said["precision"] = said
            reading.plain = reading.plain and inner.plain
            reading.cpu = reading.cpu or inner.cpu
            reading.processes, reading.nodes = inner.processes, inner.nodes
            reading.approximated += inner.approximated
            reading.notes += inner.notes
        reading.processes = self.launched.processes or reading.processes


_ITS_OWN = frozenset(("stack", "grad-accum", "precision"))
"""What the Trainer's arguments say first, whatever the launcher does."""
