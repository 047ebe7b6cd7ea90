"""Exports that other engines run or read: Ray for real, Kubeflow's published models, SkyPilot's own parser.

Each is skipped, by name, where it is not installed: pip install ray[train], kubeflow, skypilot.
"""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from gpu_plan.cli import main
from gpu_plan.planner.plan.files import save
from tests.execution.test_export_elsewhere import SCRIPT
from tests.support.launch_plans import saved

pytestmark = pytest.mark.slow


def needs(module: str, words: str) -> pytest.MarkDecorator:
    absent = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(absent, reason=f"{module} is not installed: pip install {words}")


def exported(folder: Path, monkeypatch: pytest.MonkeyPatch, engine: str, gpus: str, *words: str) -> Path:
    (folder / "train.py").write_text(SCRIPT)
    (folder / "neighbour.py").write_text("LAYERS = 2\n")
    save(saved("ddp", gpus, micro=2, steps=1, precision="fp32"), str(folder / "plan.json"), force=True)
    monkeypatch.chdir(folder)
    assert main(["export", "plan.json", "--to", engine, "-o", "launch", *words]) == 0
    return folder / "launch"


@needs("kubeflow_trainer_api", "kubeflow")
@pytest.mark.parametrize("gpus", ["2x1xcpu", "2x8xH100"])
def test_kubeflow_s_models_read_all_of_it(gpus, tmp_path, monkeypatch):
    from kubeflow_trainer_api.models.io_k8s_api_core_v1_config_map import IoK8sApiCoreV1ConfigMap
    from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob

    words = ("--set", "kubeflow.image=a/b:1", "--set", "kubeflow.namespace=team", "--set", "kubeflow.env.A=1")
    launch = exported(tmp_path, monkeypatch, "kubernetes", gpus, *words)
    files, job = yaml.safe_load_all((launch / "trainjob.yaml").read_text())
    # What a model does not know it drops: what comes back is all that was written.
    assert TrainerV1alpha1TrainJob.from_dict(job).to_dict() == job
    assert IoK8sApiCoreV1ConfigMap.from_dict(files).to_dict() == files


@needs("sky", "skypilot")
@pytest.mark.parametrize(("gpus", "each"), [("2x1xcpu", {}), ("2x8xH100", {"H100": 8})])
def test_skypilot_s_parser_reads_it(gpus, each, tmp_path, monkeypatch):
    import sky

    launch = exported(tmp_path, monkeypatch, "skypilot", gpus, "--set", "skypilot.use-spot=true")
    monkeypatch.chdir(launch)
    task = sky.Task.from_yaml("task.yaml")
    (resources,) = task.resources
    assert (task.num_nodes, resources.accelerators or {}, resources.use_spot) == (2, each, True)


@pytest.fixture
def ray_nodes() -> Iterator[str]:
    """Two `ray start` on this machine; whatever has their folder among its words is ended."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    start = (sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus", "2", "--disable-usage-stats")
    more = ("--object-store-memory", "100000000")
    head = ("--head", "--port", str(port), "--temp-dir", folder, "--include-dashboard", "false")
    try:
        subprocess.run((*start, *more, *head), check=True, capture_output=True, timeout=300)
        address = f"127.0.0.1:{port}"
        subprocess.run((*start, *more, "--address", address), check=True, capture_output=True, timeout=300)
        yield address
    finally:
        for process in psutil.process_iter(["cmdline"]):
            if any(folder in word for word in process.info["cmdline"] or ()):
                process.send_signal(signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@needs("ray", "'ray[train]'")
def test_ray_train_runs_it_on_two_nodes(ray_nodes, tmp_path, monkeypatch):
    launch = exported(tmp_path, monkeypatch, "ray", "2x1xcpu")
    moved, out = tmp_path / "an other place", tmp_path / "out"
    shutil.move(launch, moved)
    out.mkdir()
    variables = {**os.environ, "RAY_ADDRESS": ray_nodes, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = (sys.executable, str(moved / "job.py"), "--out", str(out))
    done = subprocess.run(command, cwd=out, env=variables, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(2)]
    assert [rank["world"] for rank in ranks] == [2, 2]
    assert ranks[0]["losses"] == ranks[1]["losses"]
    command = (sys.executable, str(moved / "job.py"), "--no-such-option")
    assert subprocess.run(command, cwd=out, env=variables, capture_output=True, timeout=900).returncode != 0
