"""Kubernetes' clients against an API that answers as the published objects are: no cluster, but the real clients.

Kubeflow's SDK and kubectl are each skipped, by name, where they are not installed.
"""

import importlib.util
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

from gpu_plan.executor.engines.engine import Settings, Shape
from gpu_plan.executor.engines.registry import find_running
from gpu_plan.executor.records.engine import EngineJob
from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.hardware.engines.registry import asked_of_an_engine

pytestmark = pytest.mark.slow
JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs"
NODE = {
    "apiVersion": "v1", "kind": "Node", "spec": {},
    "metadata": {"name": "n0", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "pool": "a"}},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8", "memory": "2097152Mi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}  # fmt: skip


class Api(BaseHTTPRequestHandler):
    """TrainJobs of one namespace, two nodes, and the list of what there is."""

    jobs: ClassVar[dict[str, dict[str, object]]] = {}

    def log_message(self, *words: object) -> None:
        """Nothing is told."""

    def _answer(self, value: object, code: int = 200) -> None:
        content = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _missing(self) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "message": "not found"}
        self._answer(status, 404)

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        name = path.rpartition("/")[2]
        if path == "/api":
            self._answer({"kind": "APIVersions", "versions": ["v1"]})
        elif path == "/apis":
            self._answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
        elif path == "/api/v1":
            one = {
                "name": "nodes",
                "singularName": "node",
                "namespaced": False,
                "kind": "Node",
                "verbs": ["get", "list"],
            }
            self._answer({"kind": "APIResourceList", "groupVersion": "v1", "resources": [one]})
        elif path == "/api/v1/nodes":
            there = [] if "nowhere" in query else [NODE, {**NODE, "metadata": {**NODE["metadata"], "name": "n1"}}]  # type: ignore[dict-item]
            self._answer({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": there})
        elif path.startswith(JOBS) and name in self.jobs:
            self._answer(self.jobs[name])
        else:
            self._missing()

    def do_POST(self) -> None:
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.partition("?")[0] != JOBS:
            self._missing()
        elif job["metadata"]["name"] in self.jobs:
            message = "trainjobs.trainer.kubeflow.org already exists"
            self._answer({"kind": "Status", "status": "Failure", "code": 409, "message": message}, 409)
        else:
            self.jobs[job["metadata"]["name"]] = job
            self._answer(job, 201)

    def do_DELETE(self) -> None:
        name = self.path.partition("?")[0].rpartition("/")[2]
        self._answer(self.jobs.pop(name)) if name in self.jobs else self._missing()


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, dict[str, object]]]:
    Api.jobs = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
        "users": [{"name": "u", "user": {}}],
    }  # fmt: skip
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield Api.jobs
    server.shutdown()


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
