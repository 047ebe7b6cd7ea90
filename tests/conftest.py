"""Every test: no network, and nobody's caches but its own."""

import gc
import os
import signal
import subprocess
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# A shell starts what it puts in the background with SIGINT ignored, and children inherit that: tests that interrupt
# would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing that test modules import becomes garbage: a tenth of their imports would be spent looking.
gc.disable()

# One folder of caches a run: whoever starts first makes it, and the workers and interpreters that it starts are handed
# it by the environment. What one of them has traced, none of the others traces again.
_MADE = None if "PLAN_TEST_SCRATCH" in os.environ else tempfile.TemporaryDirectory(prefix="plan-tests-")
_SCRATCH = os.environ.setdefault("PLAN_TEST_SCRATCH", _MADE.name if _MADE else "")

# huggingface_hub reads its variables once, when it is imported: they stand before any test module is.
for _name, _value in {
    "HF_HUB_OFFLINE": "1",
    "HF_HOME": os.path.join(_SCRATCH, "huggingface"),
    "GPU_PLAN_CACHE": os.path.join(_SCRATCH, "gpu-plan"),
    "XDG_CACHE_HOME": os.path.join(_SCRATCH, "cache"),
    "OMP_NUM_THREADS": "1",  # There is a worker for each processor: threads of their own would only take turns.
    "HF_ENDPOINT": "http://127.0.0.1:9",
    "CUDA_VISIBLE_DEVICES": "",
    "COLUMNS": "100",
}.items():
    os.environ[_name] = _value
for _name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE", "TRANSFORMERS_OFFLINE", "NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(_name, None)
# Images for containers often set it: each of some hundred processes that tests start would compile this project anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same examples each time, however long a busy machine takes to draw them.
settings.register_profile("any machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_collection_finish() -> None:
    """What the test modules have imported stays, garbage of theirs with it: no collection goes through it.

    References are taken after a full collection each; torch's and transformers' objects made that half a second.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # By default a twentieth of all tests' time would be spent looking.
    gc.enable()


def pytest_unconfigure() -> None:
    """The caches of this run go with it."""
    if _MADE is not None:
        _MADE.cleanup()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests marked own_process run in an interpreter of their own: forked ranks must not inherit what others import."""
    if pyfuncitem.get_closest_marker("own_process") is None or "PLAN_TEST_ALONE" in os.environ:
        return None
    words = [sys.executable, "-m", "pytest", pyfuncitem.nodeid, "-m", "", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PLAN_TEST_ALONE": "1"}
    done = subprocess.run(
        words,
        cwd=pyfuncitem.config.rootpath,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return True
