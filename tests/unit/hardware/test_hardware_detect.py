"""What the vendors' tools print, read without them."""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.errors import PreflightError
from gpu_plan.planner.hardware import detect
from gpu_plan.planner.hardware.detect import (
    Device,
    cluster_of,
    detect_cluster,
    gpu_of,
    parse_nvidia_smi,
    parse_rocm_smi,
    visible_devices,
)
from gpu_plan.planner.hardware.ram import machine_ram_bytes, parse_limit, parse_meminfo, smallest
from gpu_plan.planner.options.cluster import find_cluster
from gpu_plan.planner.units import GIB, MIB

RAM = 64 * GIB
TWO_T4 = """\
0, GPU-1f2e3d4c-0000-0000-0000-000000000000, Tesla T4, 15360, 7.5
1, GPU-5a6b7c8d-0000-0000-0000-000000000000, Tesla T4, 15360, 7.5
"""
H100_OLD_QUERY = "0, GPU-aaaa0000-1111-2222-3333-444444444444, NVIDIA H100 80GB HBM3, 81559\n"
MIXED = """\
0, GPU-0aaa, NVIDIA GeForce RTX 3090, 24576, 8.6
1, GPU-1bbb, NVIDIA GeForce RTX 4090, 24564, 8.9
"""
ROCM = json.dumps(
    {
        "card0": {"Card Series": "AMD Instinct MI300X OAM", "VRAM Total Memory (B)": "206141652992"},
        "card1": {"Card Series": "AMD Instinct MI300X OAM", "VRAM Total Memory (B)": "206141652992"},
        "system": {"Driver version": "6.7.0"},
    }
)
MEMINFO = "MemTotal:       65856380 kB\nMemFree:         1234 kB\n"


def test_two_t4() -> None:
    devices = parse_nvidia_smi(TWO_T4)
    assert [device.index for device in devices] == [0, 1]
    assert devices[0].memory_bytes == 15360 * MIB
    cluster = cluster_of(devices, RAM)
    assert (cluster.spec, cluster.gpu.id, cluster.host_ram_bytes) == ("2xT4", "t4", RAM)
    assert cluster.capacity_basis == "torch", "nvidia-smi's figure is not what torch can use"


def test_query_without_compute_capability() -> None:
    (device,) = parse_nvidia_smi(H100_OLD_QUERY)
    assert device.compute_capability is None
    assert gpu_of(device).id == "h100-sxm-80"


def test_messages_are_not_devices() -> None:
    assert parse_nvidia_smi("No devices were found\n") == []
    assert parse_nvidia_smi("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.") == []
    assert parse_nvidia_smi("0, GPU-1, NVIDIA H100, [N/A], 9.0") == []


def test_mixed_gpus_are_refused() -> None:
    with pytest.raises(PreflightError, match=r"different GPUs \(NVIDIA GeForce RTX 3090, NVIDIA GeForce RTX 4090\)"):
        cluster_of(parse_nvidia_smi(MIXED), RAM)


def test_visible_devices_choose_among_mixed_gpus() -> None:
    devices = parse_nvidia_smi(MIXED)
    assert cluster_of(visible_devices(devices, "1"), RAM).gpu.id == "rtx-4090"
    assert cluster_of(visible_devices(devices, "GPU-0aaa"), RAM).gpu.id == "rtx-3090"
    assert visible_devices(devices, None) == devices
    assert visible_devices(devices, "") == []
    assert visible_devices(devices, "-1,0") == [], "an entry that names no device ends the list"
    assert visible_devices(devices, "0,7,1") == devices[:1]


def test_unknown_gpu_is_described_by_its_print() -> None:
    (device,) = parse_nvidia_smi("0, GPU-1, NVIDIA Hypothetical 9000, 40000, 8.9")
    gpu = gpu_of(device)
    assert (gpu.name, gpu.usable_bytes, gpu.usable_basis) == (
        "NVIDIA Hypothetical 9000",
        40000 * MIB,
        "nvidia-smi",
    )
    assert gpu.supports_bf16
    assert gpu.source_of("usable_bytes") == "nvidia-smi on this machine"


def test_a_slice_of_a_known_gpu_has_the_memory_that_is_printed() -> None:
    (device,) = parse_nvidia_smi("0, GPU-1, NVIDIA A100-SXM4-80GB, 20096, 8.0")
    gpu = gpu_of(device)
    assert (gpu.id, gpu.usable_bytes, gpu.usable_basis) == ("a100-sxm-80", 20096 * MIB, "nvidia-smi")


def test_rocm() -> None:
    cluster = cluster_of(parse_rocm_smi(ROCM), RAM)
    assert (cluster.spec, cluster.gpu.id) == ("2xMI300X", "mi300x")


def test_no_device_means_one_cpu_process() -> None:
    cluster = cluster_of([], RAM)
    assert (cluster.spec, cluster.capacity_bytes) == ("cpu", RAM)


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    for device in [*parse_nvidia_smi(text), *parse_rocm_smi(text)]:
        assert isinstance(device, Device)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["card0", "card", "Card Series", "VRAM Total Memory (B)"]), inner)
        ),
        max_leaves=8,
    )
)
def test_any_json_is_read(value: object) -> None:
    assert isinstance(parse_rocm_smi(json.dumps(value)), list)


def test_meminfo_and_limits() -> None:
    assert parse_meminfo(MEMINFO) == 65856380 * 1024
    assert parse_meminfo("nothing") is None
    assert parse_limit("max\n") is None
    assert parse_limit("2147483648\n") == 2 * GIB
    assert smallest(64 * GIB, [None, 2 * GIB]) == 2 * GIB
    assert smallest(64 * GIB, [9223372036854771712, None]) == 64 * GIB, "version 1 writes no limit as a huge one"
    assert smallest(None, [None]) is None


def _install(folder: Path, name: str, script: str) -> None:
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)


def test_auto_asks_the_tool_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Like an old driver: the query that names compute_cap fails.
    script = (
        'case "$*" in *compute_cap*) echo "not a valid field" ; exit 2;; esac\n'
        "echo '0, GPU-1, Tesla V100-SXM2-16GB, 16160'\necho '1, GPU-2, Tesla V100-SXM2-16GB, 16160'"
    )
    _install(tmp_path, "nvidia-smi", script)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert find_cluster("auto").spec == "2xV100-16GB"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert detect_cluster().spec == "1xV100-16GB"


def test_auto_without_tools_is_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster = detect_cluster()
    assert (cluster.spec, cluster.host_ram_bytes) == ("cpu", machine_ram_bytes())


def test_a_tool_that_hangs_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, "nvidia-smi", "exec /bin/sleep 30")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(detect, "_TIMEOUT_SECONDS", 0.2)
    assert detect_cluster().spec == "cpu"
