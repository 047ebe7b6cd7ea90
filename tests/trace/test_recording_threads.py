"""A step is recorded on one thread, and the process has as many as before behind it."""

import pytest
import torch

from gpu_plan.planner.trace.recording.collection import one_thread


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_as_before(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
