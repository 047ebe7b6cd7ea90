"""The script's own view of CUDA's peaks, while we reset them at every border."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.executor.runner.memory.cuda import CudaMemory


class Counter:
    """One device's counters, as torch's caching allocator keeps them: current and peak, and one reset for all."""

    def __init__(self):
        self.current = self.peak = 0

    def move(self, amount):
        self.current = max(self.current + amount, 0)
        self.peak = max(self.peak, self.current)

    def stats(self, index):
        pools = {"all": {"current": self.current, "peak": self.peak}}
        return {
            "allocated_bytes": pools,
            "reserved_bytes": {"all": {"current": 0, "peak": 2 * self.peak}},
            "num_ooms": 0,
        }

    def reset(self, index):
        self.peak = self.current


def torch_with(counter):
    module = SimpleNamespace(_cuda_memoryStats=counter.stats, _cuda_resetPeakMemoryStats=counter.reset)
    return SimpleNamespace(_C=module, cuda=SimpleNamespace())


EVENTS = st.lists(
    st.one_of(st.integers(-50, 50), st.just("border"), st.just("reset"), st.just("look")), min_size=1, max_size=60
)


@given(EVENTS)
def test_the_script_sees_what_it_would_see_without_us_and_we_see_each_interval(events):
    unwatched, watched = Counter(), Counter()
    torch = torch_with(watched)
    memory = CudaMemory(torch, 0)
    highest = 0
    for event in events:
        if isinstance(event, int):
            unwatched.move(event)
            watched.move(event)
            highest = max(highest, watched.current)
        elif event == "border":
            assert memory.border() == (highest, 2 * highest)
            highest = watched.current
        elif event == "reset":
            unwatched.reset(0)
            torch._C._cuda_resetPeakMemoryStats(0)
        else:
            assert torch._C._cuda_memoryStats(0) == unwatched.stats(0)
    assert torch._C._cuda_memoryStats(0) == unwatched.stats(0)


def test_other_devices_are_left_alone():
    counter = Counter()
    torch = torch_with(counter)
    memory = CudaMemory(torch, 0)
    counter.move(10)
    memory.border()
    counter.move(-10)
    memory.border()
    assert torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"] == 10
    assert torch._C._cuda_memoryStats(1)["allocated_bytes"]["all"]["peak"] == 0
