"""Kubernetes' clients against an API that answers as the published objects are: no cluster, but the real clients.

Kubeflow's SDK and kubectl are each skipped, by name, where they are not installed.
"""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpu_plan.executor.engines.engine import Settings, Shape
from gpu_plan.executor.engines.registry import find_running
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.hardware.engines.registry import asked_of_an_engine
from tests.support import kube

pytestmark = pytest.mark.slow


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, dict[str, object]]]:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with kube.api(tmp_path) as jobs:
        yield jobs


@pytest.mark.skipif(
    importlib.util.find_spec("kubeflow") is None, reason="kubeflow is not installed: pip install kubeflow"
)
def test_a_train_job_is_made_followed_and_ended(api, tmp_path, monkeypatch):
    from kubernetes import config

    monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    engine = find_running("kubeflow")
    settings = Settings(values={"namespace": "team", "volume": "claim", "image": "a/b:1"})
    folder = tmp_path / "runs" / "20261123-000000-abcdef" / "engine"
    folder.mkdir(parents=True)
    shape = Shape(name="train", nodes=2, ranks_per_node=8, gpu="H100")
    file = folder / engine.submit_file
    file.write_text(engine.job_file(shape, settings, folder=folder, lead=[], python_path=""))
    engine.check(settings)
    job = engine.submit(file, settings)
    assert job == EngineJob(engine="kubeflow", job="train-abcdef", where="team")
    assert api["train-abcdef"] == yaml.safe_load(file.read_text())  # what the models do not know they drop
    with pytest.raises(UsageError, match=r"Kubernetes refuses the TrainJob: .*already exists"):
        engine.submit(file, settings)
    assert engine.state(job).words == "Created"
    api["train-abcdef"]["status"] = {"conditions": [{"type": "Failed", "status": "True", "message": "a pod failed"}]}
    state = engine.state(job)
    assert (state.where, state.words, state.cancelled) == ("ended", "Failed (a pod failed)", False)
    engine.cancel(job)
    assert not api
    assert engine.state(job).cancelled


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_nodes_as_kubectl_gets_them(api):
    found = asked_of_an_engine("k8s:pool=a")
    assert found is not None
    assert (found.spec, found.host_ram_bytes) == ("2x8xH100", 2**41)
    with pytest.raises(InputError, match="no node of it is up"):
        asked_of_an_engine("k8s:pool=nowhere")
