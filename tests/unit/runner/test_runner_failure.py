"""What an exception says about why a rank ended."""

import pytest

from gpu_plan.executor.runner.failure import describe, exit_code, requested_bytes, user_frames


class OutOfMemoryError(RuntimeError):
    """As torch's."""


OutOfMemoryError.__module__ = "torch"


class DistBackendError(RuntimeError):
    """As torch.distributed's."""


DistBackendError.__module__ = "torch.distributed"


def raised(error, cause=None):
    try:
        raise error from cause
    except BaseException as caught:
        return caught


CUDA = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.2 GiB is free."
)
GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:23977"
NCCL = "NCCL error in: NCCLUtils.cpp:77, remote process exited or there was a network error, NCCL version 2.27"


@pytest.mark.parametrize(
    ("error", "status", "requested"),
    [
        (OutOfMemoryError(CUDA), "oom", 2_684_354_560),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1073741824 bytes."),
            "oom",
            2**30,
        ),
        (MemoryError("Unable to allocate 7.50 GiB for an array with shape (3,)"), "oom", 8_053_063_680),
        (MemoryError(), "oom", None),
        (OSError(12, "Cannot allocate memory"), "oom", None),
        (RuntimeError("CUDA error: out of memory"), "oom", None),
        (DistBackendError(NCCL), "peer_failure", None),
        (RuntimeError(GLOO), "peer_failure", None),
        (RuntimeError("The server socket has failed to listen: port 29500, EADDRINUSE"), "exception", None),
        (ConnectionResetError("Connection reset by peer"), "exception", None),  # the user's own network
        (ValueError("Connection closed by peer [gloo]"), "exception", None),
        (KeyboardInterrupt(), "interrupted", None),
        (SystemExit(3), "exit", None),
    ],
)
def test_status_and_requested_bytes(error, status, requested):
    found, record = describe(raised(error))
    assert (found, record.requested_bytes) == (status, requested)


def test_memory_that_ran_out_is_the_cause_of_what_it_was_wrapped_in():
    found, record = describe(raised(ValueError("the step failed"), OutOfMemoryError(CUDA)))
    assert (found, record.type) == ("oom", "torch.OutOfMemoryError")
    assert "the step failed" in record.traceback


def test_a_shortage_that_the_script_has_dealt_with_is_not_the_cause():
    error = raised(KeyError("cache"))
    error.__context__, error.__suppress_context__ = OutOfMemoryError(CUDA), True  # as `raise ... from None`
    assert describe(error)[0] == "exception"


def test_place_is_the_last_line_of_the_users_own(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import json\n\n\ndef load():\n    return json.loads('{')\n\n\nload()\n")
    try:
        exec(compile(script.read_text(), str(script), "exec"), {})
    except ValueError as error:
        record = describe(error)[1]
    assert (record.file, record.line) == (str(script), 5)
    assert record.type == "json.decoder.JSONDecodeError"


def test_a_script_that_does_not_parse_is_named():
    with pytest.raises(SyntaxError) as caught:
        compile("x = (", "/somewhere/train.py", "exec")
    record = describe(caught.value)[1]
    assert (record.file, record.line) == ("/somewhere/train.py", 1)


@pytest.mark.parametrize(
    ("error", "code"),
    [(SystemExit(), 0), (SystemExit(3), 3), (SystemExit("no data"), 1), (SystemExit(-1), 255), (ValueError(), 1)],
)
def test_exit_codes_are_those_of_python(error, code):
    assert exit_code(error) == code


def test_units():
    assert requested_bytes("Tried to allocate 20.00 MiB") == 20 * 2**20
    assert requested_bytes("nothing of the kind") is None


def test_frames_of_others_are_kept():
    error = raised(ValueError())
    assert user_frames(error.__traceback__) is error.__traceback__
