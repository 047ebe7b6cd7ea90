"""Which device's kernels a trace stands for: enough to name it in a cache, without torch."""

from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.plain.values import dataclass

_AMPERE = (8, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """Kernels are chosen by compute capability and number of multiprocessors; None means CPU kernels."""

    capability: tuple[int, int] | None
    sm_count: int = 0

    @property
    def kernels(self) -> str | None:
        """What attention kernels are chosen by, where the number of multiprocessors does not matter; None on a CPU.

        pytorch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: cuDNN first on 9 and 10, flash from 8 on, with
        smaller heads where shared memory is small (8.6 to 8.9 and 12).
        """
        if self.capability is None:
            return None
        if self.capability[0] in (9, 10):
            return "cudnn"
        if self.capability < _AMPERE:
            return "before-flash"
        return "small-flash" if (8, 6) <= self.capability <= (8, 9) or self.capability[0] == 12 else "flash"

    @property
    def key(self) -> str:
        if self.capability is None:
            return "cpu"
        return f"sm{self.capability[0]}{self.capability[1]}x{self.sm_count}"


def device_kind(gpu: Gpu) -> DeviceKind:
    """The kernels that run on a GPU. Devices of other vendors are taken to choose as Ampere does."""
    if gpu.is_cpu:
        return DeviceKind(capability=None)
    return DeviceKind(capability=gpu.compute_capability or _AMPERE, sm_count=gpu.sm_count or 108)
