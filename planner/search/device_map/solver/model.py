"""The placement as an integer program over runs of identical items.

Identical layers are counted, not named, so a model of 61 layers on eight GPUs has a few dozen variables instead of
hundreds, and no symmetric solutions among layers. Bytes are divided by `Scale.bytes` to keep coefficients where
the solver's tolerances are a byte or two; every answer is checked again in whole bytes by `evaluate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from gpu_plan.planner.search.device_map.items import Run
from gpu_plan.planner.search.device_map.problem import Device, DeviceName, Problem
from gpu_plan.planner.search.device_map.solver.program import Answer, Program, Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """Which device runs what is offloaded, and which devices run or store."""

    main: DeviceName | None
    """None: nothing is offloaded."""
    running: tuple[Device, ...]
    """GPUs; the CPU where there is none."""
    storing: tuple[Device, ...]
    """Devices from which weights stream; empty when nothing is offloaded."""


@dataclass(slots=True)
class Model:
    """Variables of one mode over given runs."""

    problem: Problem
    mode: Mode
    runs: Sequence[Run]
    scale: float
    slack: int = 0
    """Bytes taken off every device: raised when rounding in the solver let a device be overfull."""
    program: Program = field(default_factory=Program)
    count: dict[tuple[int, DeviceName], int] = field(default_factory=dict)
    """(run, device) to the variable that counts the run's items placed there."""
    present: dict[tuple[int, DeviceName], int] = field(default_factory=dict)
    """(run, running device) to 1 when any of the run's items runs there."""
    need: dict[DeviceName, list[Terms]] = field(default_factory=dict)
    """Per device linear sums in scaled bytes: what it holds with each headroom that it may need; the peak is the
    largest. Rows instead of one headroom variable keep the program free of continuous variables."""

    def build(self) -> "Model":
        """Adds counts, capacities, headroom and ties."""
        main = self.mode.main
        for index, run in enumerate(self.runs):
            total: Terms = {}
            for device in (*self.mode.running, *self.mode.storing):
                variable = self.program.variable(high=run.count)
                self.count[index, device.name] = variable
                total[variable] = 1.0
            self.program.equal(total, run.count)
            for device in self.mode.running:
                self.present[index, device.name] = self.program.variable()
                here: Terms = {self.count[index, device.name]: 1.0}
                if device.name == main:
                    here |= {self.count[index, store.name]: 1.0 for store in self.mode.storing}
                # Tight both ways: presence without an item would only cost boundaries, but bounds use it.
                self.program.at_most({**here, self.present[index, device.name]: -run.count}, 0.0)
        for device in (*self.mode.running, *self.mode.storing):
            self._capacity(device)
        self._ties()
        if main is not None and self.mode.running[0].kind == "gpu":
            self.program.at_least({self.count[i, main]: 1.0 for i in range(len(self.runs))}, 1.0)
        return self

    def order_equal_devices(self) -> None:
        """Of equal devices other than the main one, an earlier holds no less: one of many maps that are the same."""
        others = [device for device in self.mode.running if device.name != self.mode.main]
        for earlier, later in pairwise(others):
            if replace(earlier, name="") == replace(later, name=""):
                more, less = self.need[earlier.name][0], self.need[later.name][0]
                self.program.at_least({**more, **{variable: -size for variable, size in less.items()}}, 0.0)

    def _capacity(self, device: Device) -> None:
        runs_here = device in self.mode.running
        terms: Terms = {}
        for index, run in enumerate(self.runs):
            kept = run.item.kept_bytes if runs_here else 0
            terms[self.count[index, device.name]] = (run.item.stored_bytes + kept) / self.scale
            if device.name == self.mode.main:
                for store in self.mode.storing:
                    terms[self.count[index, store.name]] = run.item.kept_bytes / self.scale
        self.need[device.name] = [terms, *({**terms, **headroom} for headroom in self._headrooms(device))]
        if device.free_bytes is not None:
            for need in self.need[device.name]:
                self.program.at_most(need, (device.free_bytes - self.slack) / self.scale)

    def _headrooms(self, device: Device) -> list[Terms]:
        """One term per size that must be free on `device` when an item of that need is there."""
        demands: dict[int, list[tuple[int, list[DeviceName]]]] = {}
        stores = [store.name for store in self.mode.storing]
        for index, run in enumerate(self.runs):
            item = run.item
            if device in self.mode.running:
                demands.setdefault(item.workspace_bytes, []).append((index, [device.name]))
            if device.name == self.mode.main and stores:
                demands.setdefault(item.workspace_bytes + item.stream_bytes, []).append((index, stores))
            if device.kind == "cpu" and device in self.mode.storing and "disk" in stores:
                demands.setdefault(item.stream_bytes, []).append((index, ["disk"]))
        demands.pop(0, None)
        found: list[Terms] = []
        for size, places in demands.items():
            needed = self.program.variable()
            for index, names in places:
                counts = {self.count[index, name]: 1.0 for name in names}
                self.program.at_most({**counts, needed: -self.runs[index].count}, 0.0)
            found.append({needed: size / self.scale})
        return found

    def _ties(self) -> None:
        first: dict[int, int] = {}
        for index, run in enumerate(self.runs):
            if run.item.tie is None:
                continue
            other = first.setdefault(run.item.tie, index)
            if other != index:
                for device in (*self.mode.running, *self.mode.storing):
                    self.program.equal({self.count[index, device.name]: 1.0, self.count[other, device.name]: -1.0}, 0.0)

    def offloaded(self, names: Sequence[DeviceName]) -> Terms:
        """Scaled bytes that stream from `names`."""
        return {
            self.count[index, name]: run.item.weight_bytes / self.scale
            for index, run in enumerate(self.runs)
            for name in names
            if (index, name) in self.count
        }

    def used(self) -> dict[DeviceName, int]:
        """Per running device a variable that is 1 when anything runs there."""
        found = {}
        for device in self.mode.running:
            variable = self.program.variable()
            for index in range(len(self.runs)):
                self.program.at_most({self.present[index, device.name]: 1.0, variable: -1.0}, 0.0)
            found[device.name] = variable
        return found

    def counts(self, answer: Answer) -> list[dict[DeviceName, int]]:
        """Per run how many items are placed where."""
        places = (*self.mode.running, *self.mode.storing)
        return [
            {place.name: answer.integer(self.count[index, place.name]) for place in places}
            for index in range(len(self.runs))
        ]
