"""A stand-in of Kubernetes: its API as clients ask it, and a kubelet whose containers are processes of this machine.

A TrainJob's own words run, with what Kubeflow's torch plugin sets for them. A pod whose code is not 0 is started again
in its place, six times at most, as a Job's backoffLimit has it (the wait between is a second here). No cluster.
"""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import psutil
import yaml

JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs"
BACKOFF_LIMIT = 6
NODE: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Node", "spec": {},
    "metadata": {"name": "n0", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "pool": "a"}},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8", "memory": "2097152Mi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}  # fmt: skip
_NODES = {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": ["get", "list"]}


class Api(BaseHTTPRequestHandler):
    """TrainJobs of one namespace, two nodes, and the list of what there is."""

    jobs: ClassVar[dict[str, dict[str, Any]]] = {}

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

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _name(self) -> str:
        return self.path.partition("?")[0].rpartition("/")[2]

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        name = path.rpartition("/")[2]
        if path == "/api":
            self._answer({"kind": "APIVersions", "versions": ["v1"]})
        elif path == "/apis":
            self._answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
        elif path == "/api/v1":
            self._answer({"kind": "APIResourceList", "groupVersion": "v1", "resources": [_NODES]})
        elif path == "/api/v1/nodes":
            there = [] if "nowhere" in query else [NODE, {**NODE, "metadata": {**NODE["metadata"], "name": "n1"}}]
            self._answer({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": there})
        elif path.startswith(JOBS) and name in self.jobs:
            self._answer(self.jobs[name])
        else:
            self._missing()

    def do_POST(self) -> None:
        job = self._body()
        if self.path.partition("?")[0] != JOBS:
            self._missing()
        elif job["metadata"]["name"] in self.jobs:
            message = "trainjobs.trainer.kubeflow.org already exists"
            self._answer({"kind": "Status", "status": "Failure", "code": 409, "message": message}, 409)
        else:
            self.jobs[job["metadata"]["name"]] = job
            self._answer(job, 201)

    def do_PATCH(self) -> None:
        wanted = self._body()
        if self._name() in self.jobs:
            job = self.jobs[self._name()]
            job["spec"] = {**job["spec"], **wanted.get("spec", {})}
            self._answer(job)
        else:
            self._missing()

    def do_DELETE(self) -> None:
        self._answer(self.jobs.pop(self._name())) if self._name() in self.jobs else self._missing()


@contextlib.contextmanager
def api(folder: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """The TrainJobs of namespace `team`, by name; `folder`/config is what KUBECONFIG names."""
    Api.jobs = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
        "users": [{"name": "u", "user": {}}],
    }  # fmt: skip
    (folder / "config").write_text(yaml.safe_dump(config))
    try:
        yield Api.jobs
    finally:
        server.shutdown()


@dataclass(kw_only=True)
class Pod:
    """One node of a TrainJob."""

    command: list[str]
    variables: dict[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    starts: int = 0
    code: int | None = None
    """0 once it has succeeded."""

    def start(self) -> None:
        """Its container."""
        self.starts += 1
        self.process = subprocess.Popen(
            self.command, env=self.variables, stdin=subprocess.DEVNULL, start_new_session=True
        )  # fmt: skip

    def lose(self) -> None:
        """Kills it and everything below it, as its node's power cut would."""
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def end(self) -> None:
        """As a pod is deleted: SIGTERM, half a minute, SIGKILL."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
            self.lose()

    def _tree(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            if self.process is not None:
                main = psutil.Process(self.process.pid)
                return [*main.children(recursive=True), main]
        return []


@dataclass(kw_only=True)
class Kubelet:
    """Runs the pods of every TrainJob that is there, until `over`."""

    folder: Path
    """Holds `config`, which KUBECONFIG names."""
    jobs: dict[str, dict[str, Any]]
    variables: dict[str, str]
    pods: dict[str, list[Pod]] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        """Until told that it is over."""
        while not self.over.wait(0.2):
            for name in {*self.jobs, *self.pods}:
                job = self.jobs.get(name)
                if job is None or job["spec"].get("suspend"):
                    for pod in self.pods.pop(name, []):
                        pod.end()
                elif name not in self.pods:
                    self.pods[name] = self._made(job)
                else:
                    self._look(name, job)
        for pods in self.pods.values():
            for pod in pods:
                pod.end()

    def _made(self, job: dict[str, Any]) -> list[Pod]:
        trainer = job["spec"]["trainer"]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        own = {one["name"]: one["value"] for one in trainer.get("env", [])}
        pods = []
        for rank in range(trainer["numNodes"]):
            torch = {
                "PET_NNODES": str(trainer["numNodes"]), "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
                "PET_NODE_RANK": str(rank), "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(port),
            }  # fmt: skip
            pods.append(Pod(command=trainer["command"], variables={**self.variables, **own, **torch}))
            pods[-1].start()
        return pods

    def _look(self, name: str, job: dict[str, Any]) -> None:
        pods = self.pods[name]
        for pod in pods:
            code = None if pod.process is None else pod.process.poll()
            if code is None or pod.code == 0:
                continue
            if code == 0:
                pod.code = 0
            elif pod.starts > BACKOFF_LIMIT:
                self._ended(job, "Failed", pods)
                return
            else:
                time.sleep(1.0)
                pod.start()
        if all(pod.code == 0 for pod in pods):
            self._ended(job, "Complete", pods)
        elif not job.get("status", {}).get("conditions"):
            job["status"] = {"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]}

    def _ended(self, job: dict[str, Any], how: str, pods: list[Pod]) -> None:
        for pod in pods:
            if pod.code != 0:
                pod.end()
                pod.code = 0
        job["status"] = {"conditions": [{"type": how, "status": "True", "message": "as its pods"}]}


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Kubelet]:
    """The API with a kubelet behind it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "KUBE"))}
    with api(folder) as jobs:
        kubelet = Kubelet(folder=folder, jobs=jobs, variables={**inherited, "OMP_NUM_THREADS": "1"})
        worker = threading.Thread(target=kubelet.work)
        worker.start()
        try:
            yield kubelet
        finally:
            kubelet.over.set()
            worker.join(120)
