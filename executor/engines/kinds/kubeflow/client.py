"""Kubeflow's SDK (kubeflow.trainer.TrainerClient 0.5), its errors in one line each (I/O)."""

import contextlib
import logging
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import psutil

from gpu_plan.executor.engines.engine import JobState, Where
from gpu_plan.planner.errors import UnreachableError, UsageError

NEEDS = "pip install kubeflow into the Python that has this package"
_WHERE: Mapping[str, Where] = {
    "Created": "queued", "Suspended": "queued", "Running": "running", "Complete": "ended", "Failed": "ended",
}  # fmt: skip
_NOT_FOUND = 404


@contextlib.contextmanager
def _in_one_line() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UnreachableError(f"Kubeflow's SDK cannot be imported ({error}): {NEEDS}") from None
    except UnreachableError:
        raise
    except Exception as error:  # kubernetes' own errors have no common class but this
        status = getattr(error, "status", None)
        said = str(getattr(error, "reason", "") or error)
        line = " ".join(said.split())[:300]
        if isinstance(status, int) and status in (400, 403, 409, 422):
            raise UsageError(f"Kubernetes refuses the TrainJob: {_message(error) or line}") from None
        raise UnreachableError(f"no answer from Kubernetes: {line}") from None


def _message(error: Exception) -> str:
    import json

    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return str(json.loads(str(getattr(error, "body", ""))).get("message", ""))[:300]
    return ""


class OnKubernetes:
    """TrainJobs in a namespace."""

    def __init__(self, namespace: str | None) -> None:
        with _in_one_line():
            from kubeflow.common.types import KubernetesBackendConfig
            from kubeflow.trainer import TrainerClient

            logging.getLogger("kubeflow").setLevel(logging.ERROR)
            self._backend: Any = TrainerClient(KubernetesBackendConfig(namespace=namespace)).backend
            self.namespace = str(self._backend.namespace)

    def _where(self) -> tuple[str, str, str, str]:
        from kubeflow.trainer.constants import constants

        return constants.GROUP, constants.VERSION, self.namespace, constants.TRAINJOB_PLURAL

    def create(self, job: Mapping[str, object]) -> str:
        """The TrainJob's name. UsageError where Kubernetes refuses it."""
        from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob

        read = TrainerV1alpha1TrainJob.from_dict(dict(job))
        with _in_one_line():
            made = self._backend.custom_api.create_namespaced_custom_object(*self._where(), read.to_dict())
        return str(made["metadata"]["name"])

    def state(self, name: str) -> JobState:
        """From the TrainJob's own conditions."""
        with _in_one_line():
            try:
                found = self._backend.custom_api.get_namespaced_custom_object(*self._where(), name)
            except Exception as error:
                if getattr(error, "status", None) == _NOT_FOUND:
                    return JobState(where="ended", words=f"there is no TrainJob {name} any more", cancelled=True)
                raise
        return state_of(found)

    def delete(self, name: str) -> None:
        """Ends a TrainJob."""
        with _in_one_line():
            self._backend.custom_api.delete_namespaced_custom_object(*self._where(), name)

    def suspend(self, name: str) -> None:
        """Takes a TrainJob's pods away and leaves the TrainJob."""
        with _in_one_line():
            wanted = {"spec": {"suspend": True}}
            self._backend.custom_api.patch_namespaced_custom_object(*self._where(), name, wanted)


def state_of(job: Mapping[str, Any]) -> JobState:
    """From a TrainJob's status (trainer.kubeflow.org/v1alpha1: Suspended, Complete, Failed; jobsStatus). Pure."""
    status = job.get("status") or {}
    held = {one["type"]: one for one in status.get("conditions") or [] if one.get("status") == "True"}
    for kind, code in (("Complete", 0), ("Failed", None)):
        if kind in held:
            said = " ".join(str(held[kind].get("message", "")).split())[:160]
            words = f"{kind} ({said})" if said else kind
            return JobState(where="ended", words=words, exit_code=code)
    if "Suspended" in held:
        return JobState(where="queued", words="Suspended")
    jobs = status.get("jobsStatus") or []
    active, ready = (sum(int(one.get(key) or 0) for one in jobs) for key in ("active", "ready"))
    if ready or active:
        return JobState(where="running", words="Running" if ready else "its pods are not ready")
    return JobState(where="queued", words="Created")


def _start(parameters: dict[str, list[str]]) -> None:
    import os
    import sys

    words = parameters["words"]
    sys.stdout.flush()
    os.execv(words[0], words)


@cache
def local() -> Any:
    """The SDK's local-process backend: its jobs live in this process alone."""
    with _in_one_line():
        from kubeflow.trainer import TrainerClient
        from kubeflow.trainer.backends.localprocess.types import LocalProcessBackendConfig

        logging.getLogger("kubeflow").setLevel(logging.ERROR)
        return TrainerClient(LocalProcessBackendConfig())


def start_local(words: Sequence[str], name: str) -> str:
    """Starts the words as a job of the local-process backend; its name."""
    client = local()
    with _in_one_line():
        from kubeflow.trainer import CustomTrainer
        from kubeflow.trainer.constants import constants
        from kubeflow.trainer.options import Name
        from kubeflow.trainer.types import types

        # For the framework `torch` the backend starts torchrun of an environment that has none; the agent has its own.
        runtime = types.Runtime(
            name=constants.DEFAULT_TRAINING_RUNTIME,
            trainer=types.RuntimeTrainer(
                trainer_type=types.TrainerType.CUSTOM_TRAINER, framework="python", image="local"
            ),
            kind=types.RuntimeKind.TRAINING_RUNTIME,
        )
        trainer = CustomTrainer(func=_start, func_args={"words": list(words)}, env=dict(os.environ))
        return str(client.train(runtime=runtime, trainer=trainer, options=[Name(name)]))


def local_state(name: str, marks: Sequence[str]) -> JobState:
    """As the backend tells it in the process that started it; elsewhere by whether a process has `marks` among its
    words."""
    client = local()
    with contextlib.suppress(ValueError):
        status = str(client.get_job(name).status)
        return JobState(where=_WHERE.get(status, "unknown"), words=status)
    there = bool(_marked(marks))
    return JobState(where="running" if there else "ended", words="Running" if there else "ended")


def end_local(marks: Sequence[str]) -> None:
    """SIGTERM to the job's processes: the backend itself ends none before its next line of output."""
    for process in _marked(marks):
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGTERM)


def _marked(marks: Sequence[str]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if all(mark in words for mark in marks):
            found.append(process)
    return found
