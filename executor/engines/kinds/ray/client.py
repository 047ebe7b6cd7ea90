"""Ray's job client (ray.job_submission.JobSubmissionClient), its errors in one line each (I/O)."""

import contextlib
import io
from collections.abc import Iterator, Mapping
from typing import Any

from gpu_plan.executor.engines.engine import JobState, Where
from gpu_plan.planner.errors import UnreachableError

_WHERE: Mapping[str, Where] = {
    "PENDING": "queued", "RUNNING": "running", "SUCCEEDED": "ended", "FAILED": "ended", "STOPPED": "ended",
}  # fmt: skip
NEEDS = "pip install 'ray[default,train]' into the Python that has this package"


@contextlib.contextmanager
def _in_one_line(address: str | None) -> Iterator[None]:
    where = f"at {address}" if address else "(RAY_ADDRESS, or one that runs on this machine)"
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it tells how to find a dashboard
            yield
    except ImportError as error:
        raise UnreachableError(f"Ray's job client cannot be imported ({error}): {NEEDS}") from None
    except (RuntimeError, ValueError, OSError) as error:  # requests' errors are OSErrors
        said = " ".join(str(error).split())[:300]
        raise UnreachableError(f"no answer from a Ray cluster {where}: {said}") from None


def connect(address: str | None) -> Any:
    """A client. `address`: of the dashboard, `http://HOST:8265`; of a cluster, `HOST:6379`; None as Ray finds it.

    UnreachableError where Ray is not installed, or nobody answers.
    """
    with _in_one_line(address):
        from ray.job_submission import JobSubmissionClient

        return JobSubmissionClient(address)


def submit(client: Any, address: str | None, entrypoint: str, variables: Mapping[str, str], name: str) -> str:
    """The job's number, which is `name`."""
    with _in_one_line(address):
        return str(
            client.submit_job(
                entrypoint=entrypoint, submission_id=name, runtime_env={"env_vars": dict(variables)}
            )
        )  # fmt: skip


def state(client: Any, address: str | None, job: str) -> JobState:
    """As the cluster tells it; `ended` for a job that it does not know."""
    with _in_one_line(address):
        try:
            told = client.get_job_info(job)
        except RuntimeError as error:
            if "404" in str(error) or "does not exist" in str(error):
                return JobState(where="ended", words=f"Ray has no job {job} any more")
            raise
    status = str(getattr(told.status, "value", told.status))
    message = " ".join(str(told.message or "").split())
    shown = message if status not in ("RUNNING", "SUCCEEDED") and "currently running" not in message else ""
    return JobState(
        where=_WHERE.get(status, "unknown"),
        words=f"{status} ({shown[:160]})" if shown else status,
        exit_code=told.driver_exit_code if status == "FAILED" else 0 if status == "SUCCEEDED" else None,
        cancelled=status == "STOPPED",
    )


def stop(client: Any, address: str | None, job: str) -> None:
    """Ends a job."""
    with _in_one_line(address):
        client.stop_job(job)


def logs(client: Any, address: str | None, job: str) -> str:
    """What the job's driver wrote."""
    with _in_one_line(address):
        return str(client.get_job_logs(job))
