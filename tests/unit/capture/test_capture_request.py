"""What the planning process asks of the capturing child comes as it was sent."""

import pytest

from gpu_plan.planner.capture.request import CaptureRequest, PlannedDevice
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.plan.codec import decode, dump, load_object
from gpu_plan.planner.workload.training import Checkpointing

DEVICE = PlannedDevice(name="NVIDIA L4", total_bytes=2**34, capability_major=8)


@pytest.mark.parametrize("mode", [None, *Checkpointing])
def test_every_kind_of_checkpointing_reaches_the_child(mode):
    request = CaptureRequest(
        script="/train.py", arguments=("--steps", "2"), working_directory="/", device=DEVICE, checkpointing=mode
    )
    read = decode(CaptureRequest, load_object(dump(request).encode(), "request"), "request")
    assert read == request
    assert read.checkpointing is mode


def test_an_unknown_kind_is_refused_by_its_key():
    request = dump(CaptureRequest(script="/train.py", working_directory="/", device=DEVICE))
    sent = request.replace('"checkpointing": null', '"checkpointing": "most"')
    with pytest.raises(InputError, match='checkpointing is "most", not one of none, selective, full'):
        decode(CaptureRequest, load_object(sent.encode(), "request"), "request")
