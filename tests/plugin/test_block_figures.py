"""A block's figures against what really happens: a CPU's allocator, and the plan of the same model."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_plan.planner.capture.block.capture import BlockCapture
from gpu_plan.planner.capture.block.stream import block_stream
from gpu_plan.planner.capture.block.world import BlockWorld
from gpu_plan.planner.capture.request import PlannedDevice
from gpu_plan.planner.errors import InputError, UsageError
from tests.plugin import blocks
from tests.support.cpu_reference import measure
from tests.support.replay_cpu import counted

HERE = Path(__file__).parent
CPU = PlannedDevice(name="cpu", total_bytes=2**34, capability_major=None)


def real(body):
    """Events of the body without oneDNN, which packs 16-bit operands on processors with instructions for them."""
    torch.manual_seed(0)
    with torch.backends.mkldnn.flags(enabled=False):
        return counted(np.asarray([change.nbytes for change in measure(body).changes]))


def recorded(body):
    world = BlockWorld(CPU, HERE)
    with world.open():
        body()
    stream = block_stream(world.recorder.finish())
    return counted(stream.event_sign * stream.requested(1)[stream.event_tensor])


def captured(body, gpu="A100-40GB", training=True):
    block = BlockCapture(gpu, HERE)
    block.start()
    try:
        body()
    finally:
        block.stop()
    return block.memory(training=training)


@pytest.mark.parametrize("body", blocks.EXACT, ids=lambda body: body.__name__)
def test_a_block_takes_what_a_cpu_really_takes(body):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        really, said = real(body), recorded(body)
    finally:
        torch.set_num_threads(threads)
    assert int(np.cumsum(said).max()) == int(np.cumsum(really).max())
    assert int(said.sum()) == int(really.sum())


def test_all_that_stands_at_the_peak_is_the_peak():
    memory = captured(blocks.adamw)
    assert sum(memory.at_peak.values()) == memory.peak_allocated_bytes
    assert sum(tensor.nbytes for tensor in memory.tensors) == memory.peak_allocated_bytes
    assert max(memory.phase_peaks.values()) == memory.peak_allocated_bytes
    assert memory.peak_reserved_bytes >= memory.peak_allocated_bytes
    assert memory.fits
    weights = [tensor for tensor in memory.tensors if tensor.category == "parameters"]
    assert {tensor.module for tensor in weights} == {name for name, _ in blocks.Net().named_parameters()}
    assert all(tensor.origin.startswith("blocks.py:") for tensor in weights)
    states = {tensor.module for tensor in memory.tensors if tensor.category == "optimizer_state"}
    assert {"up.weight exp_avg", "up.weight exp_avg_sq"} <= states


def test_the_gradient_of_a_shared_weight_is_a_gradient():
    """Its parts are summed in place on a device, and out of place while a mode watches."""

    def body():
        embedding, head = torch.nn.Embedding(4000, 64), torch.nn.Linear(64, 4000, bias=False)
        head.weight = embedding.weight
        model = torch.nn.Sequential(embedding, head)
        model(torch.randint(0, 4000, (8,))).sum().backward()
        torch.optim.Adam(model.parameters()).step()

    memory = captured(body)
    assert memory.phase_of_peak == "optimizer step"
    assert memory.at_peak["gradients"] == memory.at_peak["parameters"] == 4000 * 64 * 4
    assert [tensor.module for tensor in memory.tensors if tensor.category == "gradients"] == ["0.weight"]


def test_a_batch_of_a_loader_is_made_on_the_cpu_and_joins_the_model():
    memory = captured(blocks.data_loader)
    assert memory.facts.steps == 4
    assert memory.at_peak["inputs"] == 16 * 192 * 4 + 512  # targets of 128 bytes take a block of their own


def test_a_second_model_counts_as_parameters():
    one, two = captured(blocks.adamw), captured(blocks.average_beside)
    assert two.at_peak["parameters"] == 2 * one.at_peak["parameters"]


def test_tf32_free_workspaces_are_those_of_the_gpu():
    ampere, hopper = captured(blocks.adamw), captured(blocks.adamw, gpu="H100")
    assert hopper.at_peak["temporary"] - ampere.at_peak["temporary"] == 2 * (32 * 2**20 - 8519680)


def test_what_was_made_before_the_block_is_given_back():
    model = blocks.Net()
    optimizer = torch.optim.AdamW(model.parameters())
    weights = {name: parameter for name, parameter in model.named_parameters()}
    values = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def body():
        blocks.loop(model, optimizer, steps=2)

    def inside():
        made = blocks.Net()
        blocks.loop(made, torch.optim.AdamW(made.parameters()), steps=2)

    assert captured(body).at_peak == captured(inside).at_peak
    assert not optimizer.state
    for name, parameter in model.named_parameters():
        assert parameter is weights[name]
        assert torch.equal(parameter, values[name])
        assert parameter.grad is None
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in weights.values()]
    blocks.loop(model, optimizer, steps=1)  # trains for real again
    assert not torch.equal(model.up.weight, values["up.weight"])


def test_torch_is_as_it_was_after_a_block_even_one_that_fails():
    names = ((torch, "tensor"), (torch, "autocast"), (torch.cuda, "is_available"), (torch.autograd, "backward"),
             (torch.nn.Module, "__call__"), (torch.nn.Module, "register_parameter"), (torch, "compile"),
             (torch.utils.data.DataLoader, "__init__"), (torch.amp.autocast_mode.autocast, "__enter__"))  # fmt: skip
    before = [getattr(home, name) for home, name in names]

    def fails():
        blocks.Net()(torch.ones(1, 192))
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        captured(fails)
    assert [getattr(home, name) for home, name in names] == before
    assert torch.ones(1).device.type == "cpu"
    assert not torch.cuda.is_available()
    assert captured(blocks.adamw).facts.steps == 3


def test_autocast_that_was_imported_by_name_counts():
    from torch.amp import autocast

    def half():
        model = blocks.Net()
        for _ in range(2):
            with autocast("cuda", dtype=torch.bfloat16):
                loss = model(torch.randn(48, 192)).pow(2).mean()
            loss.backward()

    shapes = " ".join(tensor.shape for tensor in captured(half).tensors)
    assert "bfloat16" in shapes


def test_inference_is_measured_when_it_is_asked_for():
    def forward():
        with torch.no_grad():
            blocks.Net()(torch.randn(48, 192))

    memory = captured(forward, training=False)
    assert memory.phase_of_peak == "forward"
    assert set(memory.phase_peaks) == {"load", "forward"}
    with pytest.raises(InputError, match="nothing was trained"):
        captured(forward)


def test_blocks_do_not_nest():
    with pytest.raises(UsageError, match="do not nest"):
        captured(lambda: captured(blocks.adamw))


@pytest.mark.parametrize("gpu", ["cpu", "8xH100", "2xcpu"])
def test_a_block_is_measured_on_one_gpu(gpu):
    with pytest.raises(UsageError, match="on one GPU"):
        BlockCapture(gpu, HERE)


@pytest.mark.slow
def test_the_first_block_of_a_process_takes_what_the_second_takes():
    """Torch imports much at its first decomposition; nothing of the program may be held by that."""
    lines = (
        "from tests.plugin.blocks import adamw_one_by_one",
        "from tests.plugin.test_block_figures import captured",
        "first, second = captured(adamw_one_by_one), captured(adamw_one_by_one)",
        "assert first.at_peak == second.at_peak, (first.at_peak, second.at_peak)",
        "assert first.phase_peaks == second.phase_peaks, (first.phase_peaks, second.phase_peaks)",
    )
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr
