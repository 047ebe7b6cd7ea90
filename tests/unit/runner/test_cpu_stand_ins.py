"""What a rank on a CPU is told in a GPU's place: Lightning's count of devices, Accelerate's kind of ranks."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpu_plan.executor.runner.cpu.ranks import _accelerate
from gpu_plan.executor.runner.hooks.trainer import install_lightning_cpu


def test_lightning_counts_a_cpu_for_each_launched_process() -> None:
    module = SimpleNamespace(CPUAccelerator=type("CPUAccelerator", (), {"auto_device_count": staticmethod(lambda: 1)}))
    install_lightning_cpu(module, 2)
    assert module.CPUAccelerator.auto_device_count() == 2


@pytest.mark.parametrize("cpu", [False, True], ids=["as on GPUs", "asked for the host"])
def test_accelerate_takes_ranks_for_devices(monkeypatch: pytest.MonkeyPatch, cpu: bool) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    kinds = SimpleNamespace(NO="no", MULTI_CPU="cpus", MULTI_GPU="gpus")

    class PartialState:
        def __init__(self, cpu: bool = False, **kwargs: Any) -> None:
            self.cpu, self.kwargs = cpu, kwargs
            self.found = self._prepare_backend(cpu)

        def _prepare_backend(self, cpu: bool) -> tuple[str | None, str]:
            return ("gloo", kinds.MULTI_CPU) if cpu else (None, kinds.NO)

    _accelerate(SimpleNamespace(PartialState=PartialState, DistributedType=kinds))
    made = PartialState(cpu=cpu, timeout=1)
    assert made.found == ("gloo", kinds.MULTI_GPU)
    assert not made.cpu, "Accelerate forms no group of ranks for a state on the host"
    assert made.kwargs == {"timeout": 1}
