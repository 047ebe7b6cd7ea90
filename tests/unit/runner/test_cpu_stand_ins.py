"""What a rank on a CPU is told in a GPU's place: Lightning's count of devices."""

from types import SimpleNamespace

from gpu_plan.executor.runner.hooks.trainer import install_lightning_cpu


def test_lightning_counts_a_cpu_for_each_launched_process() -> None:
    module = SimpleNamespace(CPUAccelerator=type("CPUAccelerator", (), {"auto_device_count": staticmethod(lambda: 1)}))
    install_lightning_cpu(module, 2)
    assert module.CPUAccelerator.auto_device_count() == 2
