"""The machine's checks on facts of many machines: what is found, what is fine, and what is honestly not known."""

from dataclasses import replace

import pytest

from gpu_plan.executor.doctor.facts import gather
from gpu_plan.executor.doctor.facts_gpus import parse_smi
from gpu_plan.executor.doctor.machine import CHECKS, FolderFacts, GpuFacts, MachineFacts, Need, examine_machine
from gpu_plan.executor.doctor.machine.check import numbers
from gpu_plan.planner.units import GIB, MIB

H100 = GpuFacts(
    index=0,
    name="NVIDIA H100 80GB HBM3",
    total_bytes=81559 * MIB,
    used_bytes=0,
    driver="570.124.06",
    compute_mode="Default",
    mig="Disabled",
)
GOOD = MachineFacts(
    kernel="6.8.0-45-generic",
    gpus=tuple(replace(H100, index=index) for index in range(8)),
    torch="2.13.0+cu128",
    torch_cuda="12.8",
    nccl="2.27.3",
    shm_bytes=500 * GIB,
    shm_free_bytes=499 * GIB,
    open_files=1_048_576,
    locked_bytes=-1,
    checkpoints=FolderFacts(path="/work", free_bytes=2000 * GIB, writable=True, filesystem="ext4"),
    cache=FolderFacts(path="/cache", free_bytes=500 * GIB, writable=True, filesystem="ext4"),
    ram_bytes=1000 * GIB,
    ram_available_bytes=900 * GIB,
    cores=96,
    busy_ports=(),
    asked_ports=(29500,),
    loopback=True,
    host_resolves=True,
    interfaces=("eth0", "lo"),
    environment={"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"},
    packages={"torch": "2.13.0+cu128", "accelerate": "1.15.0", "transformers": "5.23.0", "deepspeed": "0.19.8"},
    clock_synchronised=True,
    file_clock_skew_seconds=0.0,
)
PLAN = Need(
    nodes=1,
    ranks=8,
    gpu_name="H100",
    strategy="zero3",
    precision="bf16-mixed",
    checkpoint_bytes=100 * GIB,
    host_bytes=0,
    loading_bytes=32 * GIB,
    nvme_bytes=0,
    headroom_bytes=4 * GIB,
    model_bytes=16 * GIB,
    versions={"torch": "2.13.0+cu128"},
    packages=("torch", "accelerate", "transformers", "deepspeed"),
)


def found(facts, need=PLAN):
    """Severities by check."""
    return {
        check.id: [finding.severity for finding in check.findings]
        for check in examine_machine(facts, need)
        if check.state == "found"
    }


def unknowns(facts, need=PLAN):
    return {check.id for check in examine_machine(facts, need) if check.state == "unknown"}


def test_a_good_machine_has_nothing():
    assert found(GOOD) == {}
    assert unknowns(GOOD) == set()


def test_of_nothing_seen_nothing_is_claimed():
    """A machine that lets nothing be seen is unknown, not fine and not broken."""
    bare = MachineFacts()
    assert found(bare) == {}
    fine = {check.id for check in examine_machine(bare, PLAN) if check.state == "ok"}
    assert fine <= {"offload-disk", "plan-versions", "leftovers"}


CASES = [
    ("gpus", "error", {"gpus": GOOD.gpus[:4]}, {}),
    ("gpus", "error", {"gpus": ()}, {}),
    ("gpus", "warning", {"gpus": tuple(replace(gpu, name="NVIDIA A100-SXM4-80GB") for gpu in GOOD.gpus)}, {}),
    ("equal-gpus", "error", {"gpus": (*GOOD.gpus[:7], replace(H100, name="NVIDIA H100 NVL", index=7))}, {}),
    ("equal-gpus", "warning", {"gpus": (*GOOD.gpus[:7], replace(H100, total_bytes=40 * GIB, index=7))}, {}),
    ("driver", "error", {"torch_cuda": None, "torch": "2.13.0+cpu"}, {}),
    ("driver", "error", {"torch_cuda": "13.0"}, {}),
    ("driver", "error", {"gpus": tuple(replace(gpu, driver="470.57.02") for gpu in GOOD.gpus)}, {}),
    ("free-gpus", "error", {"gpus": (replace(H100, used_bytes=20 * GIB), *GOOD.gpus[1:])}, {}),
    ("free-gpus", "warning", {"gpus": (replace(H100, used_bytes=2 * GIB), *GOOD.gpus[1:])}, {}),
    ("free-gpus", "error", {"gpus": (replace(H100, compute_mode="Prohibited"), *GOOD.gpus[1:])}, {}),
    ("free-gpus", "error", {"gpus": (replace(H100, mig="Enabled"), *GOOD.gpus[1:])}, {}),
    ("nccl", "warning", {"nccl": "2.14.3"}, {}),
    ("kernel", "warning", {"kernel": "5.4.0-150-generic"}, {}),
    ("kernel", "warning", {"kernel": "3.10.0-1160.el7.x86_64"}, {}),
    ("ram", "error", {}, {"host_bytes": 950 * GIB}),
    ("ram", "warning", {"ram_available_bytes": 20 * GIB}, {}),
    ("ram", "warning", {"ram_bytes": 20 * GIB}, {}),
    ("shared-memory", "error", {"shm_bytes": 64 * MIB, "shm_free_bytes": 64 * MIB}, {}),
    ("shared-memory", "warning", {"shm_bytes": GIB, "shm_free_bytes": 700 * MIB}, {}),
    ("limits", "warning", {"open_files": 256}, {}),
    ("limits", "note", {"open_files": 1024}, {}),
    ("limits", "warning", {"locked_bytes": 65536}, {"nodes": 2}),
    ("cores", "warning", {"cores": 4}, {}),
    ("clock", "warning", {"file_clock_skew_seconds": -120.0}, {}),
    ("clock", "warning", {"clock_synchronised": False}, {"nodes": 2}),
    ("checkpoint-disk", "error", {"checkpoints": FolderFacts(path="/w", free_bytes=50 * GIB, writable=True)}, {}),
    ("checkpoint-disk", "warning", {"checkpoints": FolderFacts(path="/w", free_bytes=150 * GIB, writable=True)}, {}),
    ("checkpoint-disk", "error", {"checkpoints": replace(GOOD.checkpoints, writable=False)}, {}),
    ("checkpoint-disk", "warning", {"checkpoints": replace(GOOD.checkpoints, filesystem="tmpfs")}, {}),
    ("checkpoint-disk", "warning", {"checkpoints": FolderFacts(path="/w", free_bytes=5)}, {"checkpoint_bytes": None}),
    ("offload-disk", "error", {"offload": FolderFacts(path="/nvme", free_bytes=GIB)}, {"nvme_bytes": 9 * GIB}),
    (
        "offload-disk",
        "warning",
        {"offload": FolderFacts(path="/home", free_bytes=900 * GIB, filesystem="nfs4")},
        {"nvme_bytes": 9 * GIB},
    ),
    ("model-cache", "error", {"cache": replace(GOOD.cache, writable=False)}, {}),
    ("model-cache", "warning", {"cache": replace(GOOD.cache, free_bytes=GIB)}, {}),
    ("model-cache", "note", {"cache": replace(GOOD.cache, filesystem="nfs")}, {}),
    ("ports", "note", {"busy_ports": (29500,)}, {}),
    ("ports", "error", {"loopback": False}, {}),
    ("host-name", "warning", {"host_resolves": False}, {}),
    ("host-name", "error", {"host_resolves": False}, {"nodes": 2}),
    ("interfaces", "error", {"environment": {"NCCL_SOCKET_IFNAME": "ib0"}}, {}),
    ("interfaces", "error", {"interfaces": ("lo",)}, {"nodes": 2}),
    ("leftovers", "error", {"environment": {"RANK": "0", "WORLD_SIZE": "8"}}, {}),
    ("leftovers", "warning", {"environment": {"MASTER_ADDR": "10.0.0.1"}}, {}),
    ("leftovers", "warning", {"environment": {"ACCELERATE_MIXED_PRECISION": "fp16"}}, {}),
    ("leftovers", "warning", {"environment": {"NCCL_P2P_DISABLE": "1"}}, {}),
    ("leftovers", "warning", {"environment": {"CUDA_VISIBLE_DEVICES": ""}}, {}),
    ("leftovers", "note", {"environment": {"https_proxy": "http://proxy:3128"}}, {}),
    ("packages", "error", {"packages": {"torch": "2.13.0+cu128", "accelerate": "1.15.0", "transformers": "5.0.0"}}, {}),
    ("packages", "warning", {"packages": {**GOOD.packages, "accelerate": "0.34.0"}}, {}),
    ("packages", "warning", {"packages": {**GOOD.packages, "transformer-engine": "2.0"}}, {}),
    ("plan-versions", "warning", {}, {"versions": {"torch": "2.11.0"}}),
]


@pytest.mark.parametrize(("id", "severity", "facts", "need"), CASES, ids=lambda value: str(value)[:40])
def test_one_fault_is_found_by_its_check(id, severity, facts, need):
    judged = found(replace(GOOD, **facts), replace(PLAN, **need))
    assert severity in judged[id]
    # A fault of GPUs may show in several checks; any other shows in its own.
    related = {"gpus", "equal-gpus", "driver", "free-gpus"} if id in {"gpus", "equal-gpus", "free-gpus"} else {id}
    assert set(judged) <= related


def test_every_check_has_a_case():
    ids = {check.id for check in examine_machine(GOOD, PLAN)}
    assert len(ids) == len(CHECKS)
    assert {case[0] for case in CASES} == ids


FINE = [
    {"environment": {"NCCL_SOCKET_IFNAME": "^lo,docker0"}},
    {"environment": {"NCCL_SOCKET_IFNAME": "=eth0:1"}},
    {"environment": {"GLOO_SOCKET_IFNAME": "eth"}},
    {"environment": {"NCCL_IB_DISABLE": "0", "TORCH_DISTRIBUTED_DEBUG": "OFF"}},
    {"environment": {"http_proxy": "http://p", "no_proxy": "localhost,127.0.0.1"}},
    {"open_files": -1},
    {"kernel": "5.15.0-122-generic"},
    {"kernel": "5.5.0"},
    {"clock_synchronised": False},
    {"file_clock_skew_seconds": 0.4},
    {"nccl": None},
]


@pytest.mark.parametrize("facts", FINE, ids=str)
def test_what_is_no_fault_is_not_found(facts):
    assert found(replace(GOOD, **facts)) == {}


def test_a_cpu_job_asks_nothing_of_gpus():
    bare = replace(GOOD, gpus=(), torch="2.13.0+cpu", torch_cuda=None, nccl=None)
    job = Need(on_cpu=True, ranks=2, strategy="ddp", precision="fp32")
    assert found(bare, job) == {}


def test_nvidia_smi_is_read():
    text = (
        "0, GPU-1a, NVIDIA H200, 143771, 4, 570.86.15, Default, Disabled\n"
        "1, GPU-2b, Tesla T4, 15360, [N/A], 550.54.15, Exclusive_Process, [N/A]\n"
        "Failed to initialize NVML: Driver/library version mismatch\n"
    )
    first, second = parse_smi(text)
    assert (first.name, first.total_bytes, first.used_bytes, first.mig) == (
        "NVIDIA H200", 143771 * MIB, 4 * MIB, "Disabled",
    )  # fmt: skip
    assert (second.used_bytes, second.compute_mode, second.mig) == (None, "Exclusive_Process", None)


def test_versions_are_numbers():
    assert numbers("5.4.0-150-generic") == (5, 4, 0, 150)
    assert numbers("2.13.0+cu128") == (2, 13, 0)
    assert numbers("unknown") == ()


def test_this_machine_can_be_looked_at(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    facts = gather(tmp_path / "not" / "there")
    assert facts.environment.get("RANK") == "3"
    assert "SECRET_TOKEN" not in facts.environment
    assert facts.checkpoints.free_bytes > 0
    assert facts.checkpoints.writable
    assert facts.cores >= 1
    assert facts.packages["torch"]
    assert abs(facts.file_clock_skew_seconds) < 5
    assert not (tmp_path / "not").exists(), "looking changes nothing"
    assert examine_machine(facts)


def test_a_port_in_use_is_seen():
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        from pathlib import Path

        assert gather(Path.cwd(), ports=(port,)).busy_ports == (port,)
