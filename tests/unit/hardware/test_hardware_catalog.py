"""The shipped facts and the search by name."""

import tomllib
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.errors import InputError, PlanError
from gpu_plan.planner.hardware.catalog import find_gpu, load_gpus
from gpu_plan.planner.hardware.machines import load_platforms
from gpu_plan.planner.units import GIB

DOCUMENT: dict[str, Any] = tomllib.loads(
    resources.files("gpu_plan.planner.hardware").joinpath("gpus.toml").read_text(encoding="utf-8")
)
IDENTITY = {"name", "short", "vendor", "architecture", "form", "match", "device_names"}
KINDS = {
    "vendor_doc",
    "vendor_doc_via_compilation",
    "measured_print",
    "sibling_print",
    "code_constant",
    "third_party_db",
    "derived",
    "assumed",
}
DTYPES = {"float32", "tf32", "float16", "bfloat16", "float8"}

NAMED_IN_THE_ISSUE = {
    "T4": "t4",
    "P100": "p100-sxm-16",
    "V100": "v100-sxm-16",
    "V100-16GB": "v100-sxm-16",
    "V100-32GB": "v100-sxm-32",
    "L4": "l4",
    "A10G": "a10g",
    "A30": "a30",
    "A40": "a40",
    "A100": "a100-sxm-40",
    "A100-40GB": "a100-sxm-40",
    "A100-80GB": "a100-sxm-80",
    "A100-PCIe": "a100-pcie-40",
    "A100-PCIe-80GB": "a100-pcie-80",
    "A100-80GB-PCIe": "a100-pcie-80",
    "A100-SXM-80GB": "a100-sxm-80",
    "RTX A6000": "rtx-a6000",
    "A6000": "rtx-a6000",
    "3090": "rtx-3090",
    "RTX 4090": "rtx-4090",
    "GeForce RTX 5090": "rtx-5090",
    "L40S": "l40s",
    "H100": "h100-sxm-80",
    "H100-80GB": "h100-sxm-80",
    "H100-96GB": "h100-sxm-96",
    "H100-PCIe": "h100-pcie-80",
    "H100-SXM": "h100-sxm-80",
    "H100-NVL": "h100-nvl-94",
    "H100-94GB": "h100-nvl-94",
    "H200": "h200-sxm",
    "B200": "b200",
    "MI300X": "mi300x",
    "cpu": "cpu",
}
AS_NVIDIA_SMI_PRINTS = {
    "Tesla T4": "t4",
    "Tesla P100-PCIE-16GB": "p100-pcie-16",
    "Tesla V100-SXM2-32GB": "v100-sxm-32",
    "Tesla V100-PCIE-16GB": "v100-pcie-16",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40",
    "NVIDIA H100 80GB HBM3": "h100-sxm-80",
    "NVIDIA H100 PCIe": "h100-pcie-80",
    "NVIDIA H100 NVL": "h100-nvl-94",
    "NVIDIA GH200 480GB": "gh200-96",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 3090 Ti": "rtx-3090-ti",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "NVIDIA RTX A6000": "rtx-a6000",
    "AMD Instinct MI300X": "mi300x",
}


@pytest.mark.parametrize(("text", "gpu_id"), [*NAMED_IN_THE_ISSUE.items(), *AS_NVIDIA_SMI_PRINTS.items()])
def test_name_resolves(text: str, gpu_id: str) -> None:
    assert find_gpu(text).id == gpu_id
    assert find_gpu(f" {text.lower().replace('-', '_')}").id == gpu_id


@pytest.mark.parametrize("table", DOCUMENT["gpus"].values(), ids=DOCUMENT["gpus"].keys())
def test_every_value_has_a_source(table: dict[str, Any]) -> None:
    values = [entry for key, entry in table.items() if key not in IDENTITY | {"peak_tflops", "prices"}]
    values += table.get("peak_tflops", {}).values()
    assert values
    for entry in values:
        source = entry["source"]
        # A bare word is a key of [sources]; everything else is a reference spelled out.
        assert source in DOCUMENT["sources"] or any(mark in source for mark in "/ "), source
        assert entry["kind"] in KINDS
        assert entry["kind"] != "assumed" or entry.get("note"), "an assumption says what it rests on"
        assert entry["kind"] != "sibling_print" or entry.get("note"), "a sibling's print says whose"
    for price in table.get("prices", ()):
        assert price["source"]
        assert price["date"][:2] == "20"


def test_every_source_is_used() -> None:
    text = resources.files("gpu_plan.planner.hardware").joinpath("gpus.toml").read_text(encoding="utf-8")
    assert [key for key in DOCUMENT["sources"] if f'source = "{key}"' not in text] == []


@pytest.mark.parametrize("gpu", load_gpus().values(), ids=lambda gpu: gpu.id)
def test_figures_are_plausible(gpu: Any) -> None:
    assert gpu.context.low <= gpu.context.expected <= gpu.context.high
    assert set(gpu.peak_flops) <= DTYPES
    assert find_gpu(gpu.short) is gpu, "the name that reports show is one that --gpus reads"
    assert find_gpu(gpu.id) is gpu
    if gpu.is_cpu:
        assert gpu.usable_bytes is None
        return
    # Vendors' GB of device memory are GiB; no driver hides more than a ninth of it.
    assert gpu.marketed_bytes * 8 / 9 < gpu.usable_bytes <= gpu.marketed_bytes
    assert 8 * GIB * 0.9 < gpu.usable_bytes < 300 * GIB
    assert gpu.bandwidth_bytes_per_s is None or 2e11 < gpu.bandwidth_bytes_per_s <= 8e12
    assert gpu.context.high < 0.1 * gpu.usable_bytes or gpu.usable_bytes < 13 * GIB
    peaks = gpu.peak_flops
    if {"float32", "bfloat16"} <= set(peaks):
        assert peaks["bfloat16"] > peaks["float32"]
    if {"float8", "bfloat16"} <= set(peaks):
        assert peaks["float8"] >= 0.99 * peaks["bfloat16"]


@pytest.mark.parametrize(
    ("text", "bf16"), [("T4", False), ("P100", False), ("V100", False), ("2080 Ti", False), ("A100", True)]
)
def test_bf16_by_architecture(text: str, bf16: bool) -> None:
    assert find_gpu(text).supports_bf16 is bf16


@pytest.mark.parametrize("text", ["L4", "RTX 4080 SUPER", "H100", "MI300X", "cpu", "Gaudi2"])
def test_bf16_supported(text: str) -> None:
    assert find_gpu(text).supports_bf16


def test_dense_peaks_not_the_sparse_headlines() -> None:
    assert find_gpu("H100").peak_flops["bfloat16"] == 989.5e12
    assert find_gpu("A100").peak_flops["bfloat16"] == 312e12
    assert find_gpu("A10G").peak_flops["bfloat16"] == 70e12
    assert find_gpu("L4").peak_flops["bfloat16"] == 121e12


def test_unusable_memory_is_marked_as_such() -> None:
    assert find_gpu("H100").usable_basis == "torch"
    assert find_gpu("GH200").usable_basis == "nvidia-smi"
    assert find_gpu("H100-96GB").usable_basis == "marketed"
    assert find_gpu("H100-96GB").usable_bytes == find_gpu("H100-96GB").marketed_bytes == 96 * GIB


def test_sources_are_spelled_out() -> None:
    source = find_gpu("H100").source_of("bandwidth_gb_per_s")
    assert source.startswith("https://www.nvidia.com/")
    assert find_gpu("H100").source_of("no such fact") == ""


def test_unknown_gpu_offers_the_nearest() -> None:
    with pytest.raises(InputError, match=r"'H10O' is unknown. Did you mean .*H100"):
        find_gpu("H10O")


def test_platforms_name_known_gpus() -> None:
    platforms = load_platforms()
    assert {"colab-t4", "colab-a100", "kaggle-p100", "kaggle-2xt4", "p5.48xlarge", "a3-highgpu-8g"} <= set(platforms)
    for name, platform in platforms.items():
        assert name == platform.name.lower()
        assert platform.gpu_id in load_gpus()
        assert 12 * GIB < platform.host_ram_bytes <= 4096 * GIB
        assert platform.host_ram_source
        assert platform.price is None or platform.price.source


def test_user_gpu() -> None:
    table = {"memory": "46 GiB", "bfloat16_tflops": 180, "compute_capability": "8.9", "node_size": 4}
    gpu = find_gpu("My Card", {"my-card": table})
    assert (gpu.usable_bytes, gpu.usable_basis) == (46 * GIB, "user")
    assert gpu.peak_flops == {"bfloat16": 180e12}
    assert gpu.compute_capability == (8, 9)
    assert gpu.source_of("memory") == "[tool.plan.gpus.my-card]"


def test_user_gpu_wins_over_a_shipped_one() -> None:
    assert find_gpu("H100", {"h100": {"memory": 1000}}).usable_bytes == 1000


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({}, "needs memory"),
        ({"memory": "a lot"}, "memory: size 'a lot' is not understood"),
        ({"memory": -1}, "memory must be a size"),
        ({"memory": True}, "memory must be a size"),
        ({"memory": "9999999 TiB"}, "memory"),
        ({"memory": "1 GiB", "memry": 1}, "unknown key 'memry'. Did you mean memory"),
        ({"memory": "1 GiB", "bandwidth_gb_per_s": "fast"}, "bandwidth_gb_per_s must be a positive number"),
        (
            {"memory": "1 GiB", "bandwidth_gb_per_s": float("nan")},
            "bandwidth_gb_per_s must be a positive number",
        ),
        ({"memory": "1 GiB", "node_size": 1.5}, "node_size must be a whole number"),
        (
            {"memory": "1 GiB", "network": "omnipath"},
            "network must be one of efa, ethernet, infiniband, infiniband-sharp, omni-path, rail-only, roce, not 'omni",
        ),
        ({"memory": "1 GiB", "network": 1}, "network must be text"),
        ({"memory": "1 GiB", "compute_capability": 8.9}, "compute_capability must be text"),
        ({"memory": "1 GiB", "compute_capability": "sm_89"}, "compute_capability must be text such as '8.9'"),
        ({"memory": "1 GiB", "context": "2 GiB"}, "context must be smaller than memory"),
        ("24GB", "must be a table"),
    ],
)
def test_wrong_user_gpu_is_one_line(table: object, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        find_gpu("mine", {"mine": table})
    assert complaint in str(caught.value)
    assert "[tool.plan.gpus.mine]" in str(caught.value)
    assert "\n" not in str(caught.value)


_RAW = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
_SOME_KEYS = ["memory", "context", "compute_capability", "vendor", "node_size", "tf32_tflops", "x"]
_KEYS = st.sampled_from(_SOME_KEYS) | st.text(max_size=8)


@given(raw=_RAW | st.dictionaries(_KEYS, _RAW, max_size=4))
def test_any_user_table_gives_a_gpu_or_a_plan_error(raw: object) -> None:
    try:
        gpu = find_gpu("mine", {"mine": raw})
    except PlanError as caught:
        error = caught
    else:
        assert gpu.usable_bytes is not None
        assert gpu.usable_bytes > 0
        return
    assert "\n" not in str(error)
