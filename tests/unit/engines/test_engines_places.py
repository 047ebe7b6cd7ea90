"""Ray and Kubeflow without one: submit files, states, facts of Ray and Kubernetes, words that make no sense."""

import ast
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpu_plan.executor.engines.engine import Settings, Shape
from gpu_plan.executor.engines.kinds.kubeflow.client import state_of
from gpu_plan.executor.engines.kinds.ray import client
from gpu_plan.executor.engines.registry import find_places, find_running
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.executor.records.run import RunRecord
from gpu_plan.planner.errors import InputError, UnreachableError, UsageError
from gpu_plan.planner.hardware.engines import kubernetes, ray, registry, skypilot
from gpu_plan.planner.hardware.engines.nodes import cluster_from

SHAPE = Shape(name="train", nodes=2, ranks_per_node=8, gpu="H100")
FOLDER = Path("/shared/runs/20261123-000000-abcdef/engine")


def job_text(engine: str, settings: Settings, shape: Shape = SHAPE) -> str:
    found = find_running(engine)
    return found.job_file(shape, settings, folder=FOLDER, lead=["python", "-m", "x"], python_path="/p q")


def wanted_of(text: str) -> dict[str, object]:
    """The JSON that the driver reads."""
    (found,) = [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and str(node.value).startswith("{")
    ]
    return json.loads(found)


def test_ray_s_driver_of_a_run_holds_what_it_was_given():
    text = job_text("ray", Settings(setup=("module load 'a'",), environment={"A": "b'c"}))
    compile(text, "job.py", "exec")
    wanted = wanted_of(text)
    assert (wanted["nodes"], wanted["resources"], wanted["failures"]) == (2, {"CPU": 8, "GPU": 8}, 3)
    assert (wanted["setup"], wanted["environment"]["A"], wanted["directory"]) == (["module load 'a'"], "b'c", "/shared")
    assert wanted_of(job_text("ray", Settings(values={"requeue": "false"})))["failures"] == 0
    with pytest.raises(UsageError, match="a whole number"):
        job_text("ray", Settings(values={"cpus-per-node": "two"}))


@pytest.mark.parametrize(
    ("status", "code", "where", "exit_code", "cancelled"),
    [
        ("PENDING", None, "queued", None, False),
        ("RUNNING", None, "running", None, False),
        ("SUCCEEDED", 0, "ended", 0, False),
        ("FAILED", 3, "ended", 3, False),
        ("STOPPED", None, "ended", None, True),
    ],
)
def test_states_of_ray(status, code, where, exit_code, cancelled):
    info = SimpleNamespace(status=SimpleNamespace(value=status), message="", driver_exit_code=code)
    found = client.state(SimpleNamespace(get_job_info=lambda job: info), None, "j")
    assert (found.where, found.exit_code, found.cancelled) == (where, exit_code, cancelled)


def test_ray_s_own_errors_are_one_line():
    def gone(job: str) -> None:
        raise RuntimeError("Request failed with status code 404: Job j does not exist")

    assert client.state(SimpleNamespace(get_job_info=gone), None, "j").where == "ended"

    def away(job: str) -> None:
        raise ConnectionError("Failed to connect\nto Ray")

    with pytest.raises(UnreachableError, match="no answer from a Ray cluster at http://a:1: Failed to connect to Ray"):
        client.state(SimpleNamespace(get_job_info=away), "http://a:1", "j")


def test_a_run_on_kubernetes_has_an_agent_on_each_node():
    import yaml

    with pytest.raises(UsageError, match=r"kubeflow.volume=CLAIM"):
        job_text("kubeflow", Settings())
    with pytest.raises(UsageError, match="does not lie there"):
        job_text("kubeflow", Settings(values={"volume": "c", "mount": "/other"}))
    job = yaml.safe_load(job_text("kubeflow", Settings(values={"volume": "claim"}, setup=(". venv/bin/activate",))))
    assert job["metadata"]["name"] == "train-abcdef"
    trainer = job["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["resourcesPerNode"]["limits"]) == (2, {"nvidia.com/gpu": "8"})
    assert subprocess.run(["sh", "-n"], input=trainer["command"][2], text=True, check=False).returncode == 0
    assert trainer["command"][2].startswith(". venv/bin/activate\ncd /shared\n")
    (patch,) = job["spec"]["runtimePatches"]
    pod = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "claim"}
    assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == "/shared"
    with pytest.raises(UsageError, match="has one node"):
        job_text("kubeflow", Settings(values={"backend": "local"}))


@pytest.mark.parametrize(
    ("status", "where", "words"),
    [
        ({}, "queued", "Created"),
        ({"jobsStatus": [{"name": "node", "active": 1, "ready": 0}]}, "running", "its pods are not ready"),
        ({"jobsStatus": [{"name": "node", "active": 0, "ready": 1}]}, "running", "Running"),
        ({"conditions": [{"type": "Suspended", "status": "True"}]}, "queued", "Suspended"),
        (
            {"conditions": [{"type": "Complete", "status": "True", "message": "all\ndone"}]},
            "ended",
            "Complete (all done)",
        ),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, "ended", "Failed"),
    ],
)
def test_states_of_a_train_job(status, where, words):
    found = state_of({"status": status})
    assert (found.where, found.words) == (where, words)


def test_a_controller_that_does_not_answer_is_no_refusal(tmp_path, monkeypatch):
    said = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
    client = tmp_path / "sbatch"
    client.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(UnreachableError, match="SLURM does not answer: Batch job submission failed: Unable to contact"):
        find_running("slurm").submit(tmp_path / "job.sbatch", Settings())


def test_hosts_are_no_option():
    assert find_places("hosts").state(EngineJob(engine="hosts", job="999999999")).where == "ended"
    with pytest.raises(UsageError, match="is not an engine"):
        find_running("hosts")


RAY = {
    "node_id": "a", "state": "ALIVE",
    "resources_total": {"CPU": 16.0, "GPU": 8.0, "accelerator_type:H100": 1.0, "memory": "100.5 GiB",
                        "object_store_memory": 2**30},
}  # fmt: skip


def test_nodes_as_ray_lists_them():
    (node,) = ray.parse(json.dumps([RAY, {**RAY, "state": "DEAD"}]))
    assert (node.gpu, node.gpus, node.ram_bytes) == ("H100", 8, int(100.5 * 2**30) + 2**30)
    (node,) = ray.parse("a line before\n" + json.dumps([{**RAY, "resources_total": {"CPU": 2.0}}]))
    assert (node.gpu, node.gpus) == (None, 0)
    for text in ("", "{}", "nonsense ["):
        with pytest.raises(InputError, match="gives no JSON"):
            ray.parse(text)
    assert ray.split("http://h:8265") == ("http://h:8265", "")
    assert ray.split("http://h:8265:H100") == ("http://h:8265", "H100")
    assert ray.split("h:6379:A100") == ("h:6379", "A100")
    assert ray.split("") == ("", "")
    with pytest.raises(InputError, match="write ray"):
        ray.split("a:b:c")


def kubernetes_node(**more: object) -> dict[str, object]:
    return {
        "metadata": {"name": "n", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
        "spec": {},
        "status": {
            "allocatable": {"nvidia.com/gpu": "8", "memory": "2097152Mi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
        **more,
    }


def test_nodes_as_kubectl_has_them():
    other = kubernetes_node(metadata={"name": "g", "labels": {"cloud.google.com/gke-accelerator": "nvidia-a100-80gb"}})
    cordoned = kubernetes_node(spec={"unschedulable": True})
    text = json.dumps({"items": [kubernetes_node(), cordoned, other]})
    nodes = kubernetes.parse(text)
    assert [(node.gpu, node.gpus, node.ram_bytes) for node in nodes] == [
        ("H100", 8, 2**41), ("A100-80GB", 8, 2**41),
    ]  # fmt: skip
    assert cluster_from(nodes, "k8s", name="H100").spec == "8xH100"
    with pytest.raises(InputError, match="name one kind, such as k8s:A100-80GB"):
        cluster_from(nodes, "k8s")
    for text in ("", "[]", "{}", '{"items": [1]}', '{"items": [{"status": 1}]}'):
        with pytest.raises(InputError, match="gives no list of nodes"):
            kubernetes.parse(text)
    assert kubernetes.split("pool=a") == ("pool=a", "")
    assert kubernetes.split("pool=a:H100") == ("pool=a", "H100")
    assert kubernetes.split("H100") == ("", "H100")


def test_the_client_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnreachableError, match="kubectl is not on PATH"):
        registry.asked_of_an_engine("k8s:pool=a")
    monkeypatch.setattr(ray, "sys", SimpleNamespace(executable="/nowhere/python"))
    with pytest.raises(UnreachableError, match="there is no `ray` beside /nowhere/python or on PATH"):
        registry.asked_of_an_engine("2xray:")


def test_jobs_and_tasks_are_known_from_inside():
    assert kubernetes.pods({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "PET_NNODES": "4"}) == 4
    assert kubernetes.pods({"PET_NNODES": "4"}) is None
    assert skypilot.task({"SKYPILOT_NUM_NODES": "2"}) == 2
    assert skypilot.task({}) is None
    assert ray.inside({"RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"})
    assert not ray.inside({})


@pytest.mark.parametrize(("where", "asked"), [("running", True), ("ended", False), ("unknown", False)])
def test_a_run_between_two_starts_can_be_cancelled(tmp_path, monkeypatch, where, asked):
    from gpu_plan.executor.engines import end
    from gpu_plan.executor.engines.engine import JobState
    from gpu_plan.executor.engines.jobs import write_engine
    from gpu_plan.executor.run_folder import RunFolder

    told: list[str] = []
    engine = SimpleNamespace(
        title="Ray",
        state=lambda job: JobState(where=where, words=""),
        cancel=lambda job: told.append(job.job),
    )
    monkeypatch.setattr(end, "find_places", lambda name: engine)
    folder = RunFolder(tmp_path)
    folder.engine.mkdir()
    write_engine(folder, EngineJob(engine="ray", job="j"))
    folder.write_run(
        RunRecord(
            run_id="r", status="interrupted", script="s", script_arguments=(), working_directory="/", world_size=2,
            started=1.0, updated=9.0, supervisor_pid=1,
        )
    )  # fmt: skip
    if asked:
        assert end.cancel(folder) == "Ray was told to cancel job j"
    else:
        with pytest.raises(UsageError, match="is over already: interrupted"):
            end.cancel(folder)
    assert told == (["j"] if asked else [])
