"""Tests of that library as a user writes them; tests/plugin/test_plugin_runs.py says what is to become of each."""

import pytest
import torch
from nets import Tower, train


@pytest.fixture
def tower():
    return Tower()


@pytest.mark.limit_gpu_memory("14 GiB", gpu="A100-40GB")
def test_within():
    train(Tower())


@pytest.mark.limit_gpu_memory("100 MiB", gpu="A100-40GB")
def test_beyond():
    train(Tower())


@pytest.mark.limit_gpu_memory(104857600, of="device")
def test_beyond_in_bytes_of_the_device():
    train(Tower())


@pytest.mark.limit_gpu_memory("1 GiB")
def test_model_of_a_fixture(tower):
    train(tower)


@pytest.mark.limit_gpu_memory("1 GiB", gpu="T4")
class TestOfAClass:
    def test_method(self):
        train(Tower())


@pytest.mark.limit_gpu_memory("14 Gigs")
def test_limit_misspelt():
    train(Tower())


@pytest.mark.limit_gpu_memory("14 GiB", gpu="A100-41GB")
def test_gpu_unknown():
    train(Tower())


@pytest.mark.limit_gpu_memory("14 GiB", 3)
def test_too_many_arguments():
    train(Tower())


@pytest.mark.limit_gpu_memory("14 GiB", off="device")
def test_argument_misspelt():
    train(Tower())


@pytest.mark.limit_gpu_memory("14 GiB")
def test_nothing_inside():
    pass


@pytest.mark.limit_gpu_memory("14 GiB")
def test_no_training_inside():
    Tower()(torch.ones(1, 1024))


@pytest.mark.limit_gpu_memory("14 GiB", task="infer")
def test_inference():
    with torch.no_grad():
        Tower()(torch.ones(1, 1024))


@pytest.mark.limit_gpu_memory("14 GiB")
def test_values_to_numpy():
    model = Tower()
    train(model)
    model.layers[0].weight.detach().numpy()


@pytest.mark.limit_gpu_memory("14 GiB")
def test_values_of_a_loop():
    model = Tower()
    loss = model(torch.randn(8, 1024)).sum()
    loss.backward()
    if loss.item() > 1e9:
        raise ValueError("diverged")


@pytest.mark.limit_gpu_memory("14 GiB")
def test_own_assertion_fails():
    model = Tower()
    train(model)
    assert (model(torch.ones(1, 1024)) > 0.5).all()


@pytest.mark.limit_gpu_memory("14 GiB")
def test_skipped_inside():
    pytest.skip("not today")


def test_fixture(plan_memory):
    with plan_memory(gpu="A100-40GB") as memory:
        train(Tower())
    assert memory.fits
    assert memory.peak_allocated == sum(memory.at_peak.values()) == max(memory.phases.values())
    assert memory.peak_allocated <= memory.peak_reserved < memory.device_used
    assert memory.at_peak["parameters"] == 4 * (1024 * 1024 * 4 + 1024 * 4)
    assert memory.largest(1)[0].nbytes >= memory.largest(2)[1].nbytes
    memory.limit("1 GiB")


def test_fixture_beyond(plan_memory):
    with plan_memory(gpu="T4") as memory:
        train(Tower())
    memory.limit("10 MiB", of="reserved")


def test_two_blocks(plan_memory):
    with plan_memory(gpu="T4") as small:
        train(Tower(depth=2))
    with plan_memory(gpu="T4") as large:
        train(Tower(depth=4))
    assert small.peak_allocated < large.peak_allocated


def test_figures_too_early(plan_memory):
    with plan_memory() as memory:
        train(Tower())
        memory.limit("1 GiB")


def test_fixture_gpu_unknown(plan_memory):
    with plan_memory(gpu="A100-41GB"):
        train(Tower())


def test_nested(plan_memory):
    with plan_memory(), plan_memory():
        train(Tower())


def test_real_afterwards():
    model = Tower(width=4, depth=1)
    assert model(torch.ones(1, 4)).device.type == "cpu"
    assert not torch.cuda.is_available()
