"""SkyPilot without one: the task of a run, its client's words by a stand-in of the `sky` command, bad input."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from gpu_plan.executor.engines.engine import Settings, Shape
from gpu_plan.executor.engines.kinds.skypilot import client
from gpu_plan.executor.engines.registry import find_running
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.planner.errors import UnreachableError, UsageError

SHAPE = Shape(name="train", nodes=2, ranks_per_node=8, gpu="H100")
FOLDER = Path("/shared/a b/runs/20261123-000000-ABCdef/engine")
SKYPILOT = find_running("skypilot")


def task(*, environment: dict[str, str] | None = None, setup: tuple[str, ...] = (), **values: str) -> dict[str, object]:
    settings = Settings(
        values={key.replace("_", "-"): value for key, value in values.items()}, environment=environment or {},
        setup=setup,
    )  # fmt: skip
    found: dict[str, object] = yaml.safe_load(
        SKYPILOT.job_file(SHAPE, settings, folder=FOLDER, lead=[], python_path="")
    )
    return found


def test_a_run_is_a_managed_job_whose_nodes_each_have_an_agent():
    made = task(volume="work", use_spot="true", max_restarts="2", environment={"A": "1"}, setup=("module load x",))
    assert made["name"] == "plan-20261123-000000-abcdef"
    assert made["num_nodes"] == 2
    assert made["resources"] == {
        "accelerators": "H100:8", "use_spot": True, "job_recovery": {"max_restarts_on_errors": 2},
    }  # fmt: skip
    assert (made["volumes"], made["envs"]) == ({"/shared/a b": "work"}, {"A": "1"})
    run = str(made["run"])
    assert run.index("SKYPILOT_NODE_RANK") < run.index("module load x") < run.index("cd '/shared/a b'")
    assert "exec python3 -P -m gpu_plan.executor.engines.agents.agent" in run
    assert subprocess.run(["sh", "-n"], input=run, text=True, check=False).returncode == 0


def test_a_job_of_a_cluster_is_not_managed_and_a_shared_folder_no_volume():
    made = task(shared="true", cluster="mine", python="/opt/py")
    assert made["resources"] == {"accelerators": "H100:8"}
    assert "volumes" not in made
    assert "exec /opt/py -P" in str(made["run"])
    words = SKYPILOT.submitting(FOLDER / "task.yaml", Settings(values={"cluster": "mine"}))
    assert tuple(words[:4]) == ("sky", "launch", "--cluster", "mine")
    assert tuple(SKYPILOT.submitting(FOLDER / "task.yaml", Settings())[:3]) == ("sky", "jobs", "launch")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "skypilot.volume=NAME"),
        ({"shared": "false"}, "skypilot.volume=NAME"),
        ({"shared": "true", "volume": "work"}, "skypilot.volume=NAME"),
        ({"volume": "work", "mount": "/elsewhere"}, "does not lie there"),
        ({"volume": "work", "max_restarts": "many"}, "a whole number"),
    ],
)
def test_what_cannot_hold_a_run_is_refused(values, said):
    with pytest.raises(UsageError, match=said):
        task(**values)


JOBS = [
    {"job_id": 3, "job_name": "a", "status": "RUNNING", "recovery_count": 0, "failure_reason": None},
    {"job_id": 4, "job_name": "b", "status": "RECOVERING", "recovery_count": 2},
    {"job_id": 5, "job_name": "c", "status": "SUCCEEDED"},
    {
        "job_id": 6,
        "job_name": "d",
        "status": "FAILED_NO_RESOURCE",
        "failure_reason": "\x1b[31mno H100\n anywhere\x1b[0m",
    },
    {"job_id": 7, "job_name": "e", "status": "CANCELLED"},
    {"job_id": 2, "job_name": "c", "status": "FAILED"},
]


@pytest.mark.parametrize(
    ("name", "where", "words", "code", "cancelled"),
    [
        ("a", "running", "RUNNING", None, False),
        ("b", "queued", "RECOVERING (begun again 2 times)", None, False),
        ("c", "ended", "SUCCEEDED", 0, False),
        ("d", "ended", "FAILED_NO_RESOURCE (no H100 anywhere)", None, False),
        ("e", "ended", "CANCELLED", None, True),
        ("f", "unknown", "SkyPilot's queue does not have f", None, False),
    ],
)
def test_states_of_the_queue(name, where, words, code, cancelled):
    state = client.state_of(client.listed(f"a note\n{json.dumps(JOBS, indent=2)}\n", ""), name)
    assert (state.where, state.words, state.exit_code, state.cancelled) == (where, words, code, cancelled)
    of_cluster = client.listed(json.dumps({"mine": JOBS, "other": []}), "mine")
    assert client.state_of(of_cluster, name) == state
    assert client.listed("no queue", "") == []
    assert client.listed("[broken", "") == []


@pytest.fixture
def sky(tmp_path, monkeypatch):
    """Says what its words were, and answers with what `answer` holds."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sky").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n. {tmp_path}/answer\n')
    (folder / "sky").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return tmp_path


def test_the_client_s_words_are_passed_on(sky):
    file, job = FOLDER / "task.yaml", EngineJob(engine="skypilot", job="a", where="mine")
    (sky / "answer").write_text("exit 0\n")
    assert SKYPILOT.submit(file, Settings()) == EngineJob(
        engine="skypilot", job="plan-20261123-000000-abcdef", where=""
    )
    (sky / "answer").write_text("echo 'YAML to run: x'; echo 'sky.exceptions.NotSupportedError: no spot'; exit 1\n")
    with pytest.raises(UsageError, match=r"refuses the task: NotSupportedError: no spot$"):
        SKYPILOT.submit(file, Settings())
    (sky / "answer").write_text("echo 'NoCloudAccessError: No enabled infra'; exit 1\n")
    with pytest.raises(UnreachableError, match="nowhere to run it: NoCloudAccessError"):
        SKYPILOT.submit(file, Settings())
    assert SKYPILOT.state(job).where == "unknown"
    (sky / "answer").write_text(f"cat <<'E'\n{json.dumps({'mine': JOBS[:1]})}\nE\n")
    assert SKYPILOT.state(job).where == "running"
    SKYPILOT.cancel(job)
    assert (sky / "asked").read_text().splitlines()[-1] == "cancel --yes mine 3"


def test_no_client_is_one_line(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnreachableError, match=r"^sky, SkyPilot's client, is not on PATH: pip install skypilot"):
        SKYPILOT.check(Settings())
