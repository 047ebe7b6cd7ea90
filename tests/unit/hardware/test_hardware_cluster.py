"""`--gpus` texts."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_plan.planner.errors import InputError, PlanError
from gpu_plan.planner.hardware.catalog import load_gpus
from gpu_plan.planner.hardware.cluster import MAX_GPUS, Cluster, cluster_document, describe, node_size, parse_cluster
from gpu_plan.planner.units import GIB

RAM = 32 * GIB


@pytest.mark.parametrize(
    ("text", "gpu_id", "nodes", "per_node", "spec"),
    [
        ("8xH100", "h100-sxm-80", 1, 8, "8xH100"),
        ("2x8xA100-80GB", "a100-sxm-80", 2, 8, "2x8xA100-80GB"),
        ("2xT4", "t4", 1, 2, "2xT4"),
        ("1xH200", "h200-sxm", 1, 1, "1xH200"),
        ("H100", "h100-sxm-80", 1, 1, "1xH100"),
        ("16xH100", "h100-sxm-80", 2, 8, "2x8xH100"),
        ("8X h100", "h100-sxm-80", 1, 8, "8xH100"),
        (" 4 x 4 x A100 ", "a100-sxm-40", 4, 4, "4x4xA100"),
        ("4xMI300X", "mi300x", 1, 4, "4xMI300X"),
        ("2x4090", "rtx-4090", 1, 2, "2xRTX-4090"),
        ("8xGB200", "gb200", 2, 4, "2x4xGB200"),
        ("1x10xL4", "l4", 1, 10, "1x10xL4"),
        ("cpu", "cpu", 1, 1, "cpu"),
        ("2xcpu", "cpu", 1, 2, "2xcpu"),
        ("100xCPU", "cpu", 1, 100, "100xcpu"),
        ("colab-t4", "t4", 1, 1, "colab-t4"),
        ("colab-a100", "a100-sxm-40", 1, 1, "colab-a100"),
        ("kaggle-p100", "p100-pcie-16", 1, 1, "kaggle-p100"),
        ("Kaggle-2xT4", "t4", 1, 2, "kaggle-2xt4"),
    ],
)
def test_reads(text: str, gpu_id: str, nodes: int, per_node: int, spec: str) -> None:
    cluster = parse_cluster(text, ram_bytes=RAM)
    assert (cluster.gpu.id, cluster.nodes, cluster.gpus_per_node, cluster.spec) == (
        gpu_id,
        nodes,
        per_node,
        spec,
    )
    assert cluster.world_size == nodes * per_node
    assert parse_cluster(cluster.spec, ram_bytes=RAM) == cluster


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0xH100", "asks for zero GPUs"),
        ("2x0xH100", "asks for zero GPUs"),
        ("-1x", "negative count"),
        ("-1xH100", "negative count"),
        ("8x", "names no GPU"),
        ("2x8x", "names no GPU"),
        ("x8", "no count before the x"),
        ("", "is not a cluster"),
        ("   ", "is not a cluster"),
        ("8xH1OO", "'H1OO' is unknown. Did you mean H100"),
        ("1.5xH100", "is unknown"),
        ("12xH100", "12 GPUs do not fill nodes of 8; take 8 or 16"),
        ("2x16xH100", "node holds 8 GPUs, not 16"),
        ("9999999xH100", "more than the 1,000,000 GPUs"),
        ("9" * 100 + "xH100", "more than the 1,000,000 GPUs"),
        ("1000000x8xH100", "more than the 1,000,000"),
        ("9" * 5000 + "xH100", "is not a cluster"),
        ("８xH100", "is not a cluster"),
        ("8×H100\u202e", "is not a cluster"),
        ("8xH100\n8xA100", "is not a cluster"),
        ("8x\x00", "is unknown"),
    ],
)
def test_refuses_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster(text, ram_bytes=RAM)
    message = str(caught.value)
    assert complaint in message
    assert "\n" not in message
    assert len(message) < 500


@given(text=st.text(max_size=40) | st.from_regex(r"[0-9x -]{0,9}(h100|A100|cpu|T4|x)?[0-9a-zGB.-]{0,6}"))
@example("x" * 10_000)
@example("8x8x8xH100")
@example("١xH100")
def test_any_text_gives_a_cluster_or_a_plan_error(text: str) -> None:
    try:
        cluster = parse_cluster(text, ram_bytes=RAM)
    except PlanError as caught:
        error = caught
    else:
        assert 1 <= cluster.world_size <= MAX_GPUS
        return
    assert str(error).isprintable()


@given(
    gpu=st.sampled_from(list(load_gpus().values())),
    nodes=st.integers(1, 1000),
    per_node=st.integers(1, 100),
)
def test_spec_reads_back_as_the_same_cluster(gpu, nodes: int, per_node: int) -> None:  # type: ignore[no-untyped-def]
    if gpu.node_size is not None:
        per_node = min(per_node, gpu.node_size)
    cluster = Cluster(gpu=gpu, nodes=nodes, gpus_per_node=per_node, host_ram_bytes=RAM if gpu.is_cpu else None)
    assert parse_cluster(cluster.spec, ram_bytes=RAM) == cluster


@given(gpu=st.sampled_from(list(load_gpus().values())), count=st.integers(1, 5000))
def test_a_count_fills_nodes_or_is_refused(gpu, count: int) -> None:  # type: ignore[no-untyped-def]
    size = node_size(gpu)
    text = f"{count}x{gpu.short}"
    if count > size and count % size:
        with pytest.raises(InputError, match="do not fill nodes"):
            parse_cluster(text, ram_bytes=RAM)
        return
    cluster = parse_cluster(text, ram_bytes=RAM)
    assert cluster.world_size == count
    assert cluster.gpus_per_node == min(count, size)


def test_capacity_is_usable_not_marketed() -> None:
    cluster = parse_cluster("8xH100")
    assert cluster.capacity_bytes == round(79.1 * GIB)
    assert cluster.capacity_basis == "torch"


def test_cpu_processes_share_the_ram() -> None:
    assert parse_cluster("cpu", ram_bytes=RAM).capacity_bytes == RAM
    assert parse_cluster("2xcpu", ram_bytes=RAM).capacity_bytes == RAM // 2


def test_cpu_reads_the_ram_of_this_machine() -> None:
    assert parse_cluster("cpu").capacity_bytes > GIB // 4


def test_links() -> None:
    h100 = parse_cluster("2x8xH100")
    assert (h100.intra_node_bytes_per_s, h100.intra_node_basis) == (450e9, "source")
    assert (h100.inter_node_bytes_per_s, h100.inter_node_basis) == (50e9, "source")
    assert h100.host_link_bytes_per_s == 63e9


def test_a_bridge_joins_only_a_pair() -> None:
    assert parse_cluster("2xH100-NVL").intra_node_bytes_per_s == 300e9
    assert parse_cluster("4xH100-NVL").intra_node_bytes_per_s == 63e9


@pytest.mark.parametrize(
    ("spec", "gigabytes", "kind"),
    [
        ("2xp4de.24xlarge", 50, "efa"),
        ("2xp5.48xlarge", 400, "efa"),
        ("2xa3-highgpu-8g", 100, "tcpx"),
        ("2xa3-megagpu-8g", 200, None),
        ("2x8xA100-80GB", 200, None),
    ],
)
def test_machines_of_clouds_have_links_of_their_own(spec: str, gigabytes: float, kind: str | None) -> None:
    """stas00/ml-engineering network/README.md: four links of 100 Gb/s a p4d, 32 a p5, four of 200 an a3-highgpu."""
    cluster = parse_cluster(spec)
    assert cluster.inter_node_bytes_per_s * cluster.gpus_per_node == gigabytes * 1e9
    assert cluster.gpu.network == kind
    assert cluster.inter_node_basis == "source"


def test_unknown_network_is_marked_assumed_and_shared() -> None:
    pair = parse_cluster("2x4xL4")
    assert (pair.inter_node_bytes_per_s, pair.inter_node_basis) == (12.5e9 / 4, "assumed")


def test_user_gpu_in_a_cluster() -> None:
    extra = {"toaster": {"memory": "12GiB", "link_gb_per_s": 20, "network_gb_per_s": 3, "node_size": 4}}
    cluster = parse_cluster("8xtoaster", extra)
    assert (cluster.nodes, cluster.gpus_per_node, cluster.capacity_bytes) == (2, 4, 12 * GIB)
    assert (cluster.intra_node_bytes_per_s, cluster.intra_node_basis) == (20e9, "given")
    assert (cluster.inter_node_bytes_per_s, cluster.inter_node_basis) == (3e9, "given")
    assert parse_cluster(cluster.spec, extra) == cluster


def test_document_is_json_with_whole_bytes() -> None:
    document = json.loads(json.dumps(cluster_document(parse_cluster("16xH100"))))
    assert document["gpu"] == "H100"
    assert (document["gpus"], document["nodes"], document["gpus_per_node"]) == (16, 2, 8)
    assert document["usable_bytes"] == round(79.1 * GIB)
    assert document["usable_basis"] == "torch"
    assert document["usable_source"]
    assert document["intra_node"] == {
        "bytes_per_s": 450_000_000_000,
        "basis": "source",
        "link": "NVLink 4 + NVSwitch",
    }


@pytest.mark.parametrize("gpu", load_gpus().values(), ids=lambda gpu: gpu.id)
def test_document_of_every_gpu(gpu) -> None:  # type: ignore[no-untyped-def]
    cluster = Cluster(gpu=gpu, nodes=2, gpus_per_node=1, host_ram_bytes=RAM)
    document = cluster_document(cluster)
    assert json.loads(json.dumps(document)) == document
    assert isinstance(document["usable_bytes"], int)
    assert gpu.is_cpu or document["usable_source"]


def test_description() -> None:
    assert describe(parse_cluster("2x8xH100")) == "2x8xH100: 16 GPUs on 2 nodes, 79.1 GiB usable each (torch)"
    assert describe(parse_cluster("cpu", ram_bytes=RAM)) == "cpu: 1 process, 32.0 GiB usable each (this machine)"


def test_platform_has_host_ram() -> None:
    assert parse_cluster("colab-t4").host_ram_bytes == 13609422848
