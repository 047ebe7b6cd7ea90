"""Transformer Engine's layers: sizes that its source gives, whole plans, and where it is refused."""

import json

import pytest
import torch
from torch import nn

from gpu_plan.cli import main
from gpu_plan.executor.doctor.machine.need import need_of
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.kernels.transformer_engine import (
    TeDevice,
    TransformerEngineLayerNorm,
    TransformerEngineLinear,
    convert_to_transformer_engine,
    transformer_engine_linears,
)
from gpu_plan.planner.plan.saved import saved_from_json

QWEN = "Qwen/Qwen2.5-7B"
HOPPER = TeDevice((9, 0), 132)
MIB = 2**20


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))


def saved_bytes(module, inp):
    """Bytes that autograd keeps of a forward pass beside the module's own parameters, each storage once."""
    kept = {}
    own = {parameter.untyped_storage()._cdata for parameter in module.parameters()}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = module(inp)
    return sum(kept.values()), out


def linear(device, *, frozen_input=False, bias=False):
    with torch.device("meta"):
        module = TransformerEngineLinear(nn.Linear(64, 96, bias=bias), "proj", device)
        inp = torch.empty(2, 16, 64, dtype=torch.bfloat16, requires_grad=not frozen_input)
    return module, inp


@pytest.mark.parametrize(
    ("capability", "copies"),
    [((8, 9), 2), ((9, 0), 2), ((10, 0), 1), ((12, 0), 2)],  # nvte_is_non_tn_fp8_gemm_supported
)
def test_what_a_linear_layer_keeps(capability, copies):
    module, inp = linear(TeDevice(capability, 100))
    kept, out = saved_bytes(module, inp)
    # float8 columns of the input, the weight in one layout or two, and two inverse scales.
    assert kept == 32 * 64 + copies * 96 * 64 + 2 * 4
    assert out.dtype is torch.bfloat16
    assert out.shape == (2, 16, 96)
    out.backward(torch.empty_like(out))
    assert module.weight.grad.dtype is torch.float32
    assert inp.grad.shape == inp.shape


def test_an_input_without_gradient_needs_no_columns_of_the_weight():
    module, inp = linear(HOPPER, frozen_input=True)
    assert saved_bytes(module, inp)[0] == 32 * 64 + 96 * 64 + 2 * 4


def test_gradients_of_a_bias():
    module, inp = linear(HOPPER, bias=True)
    out = module(inp)
    out.backward(torch.empty_like(out))
    assert module.bias.grad.shape == (96,)
    assert module.weight.grad.shape == (96, 64)


def test_state_and_workspace():
    module, _ = linear(HOPPER)
    # set_meta_tensor: 3 scales and 3 x 1024 maxima forward, 2 and 2 x 1024 backward, all fp32.
    assert sum(buffer.nbytes for buffer in module.buffers()) == 4 * (3 + 3 * 1024 + 2 + 2 * 1024)
    assert HOPPER.workspace_bytes == 32 * MIB + 1024
    assert TeDevice((8, 9), 142).workspace_bytes == 4_194_304


def test_layer_norm_has_the_type_of_its_weight_or_of_autocast():
    with torch.device("meta"):
        module = TransformerEngineLayerNorm(nn.LayerNorm(64).bfloat16(), HOPPER)
        inp = torch.empty(2, 16, 64, dtype=torch.bfloat16, requires_grad=True)
    kept, out = saved_bytes(module, inp)
    assert kept == 2 * 32 * 64 + 2 * 4 * 32  # the input, and two numbers per row
    assert out.dtype is torch.bfloat16
    out.backward(torch.empty_like(out))
    assert module.weight.grad.dtype is torch.bfloat16


class Odd(nn.Module):
    """Its second linear layer has a size that float8 products do not take."""

    def __init__(self, first=64):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64))
        self.one = nn.Linear(first, 64)
        self.odd = nn.Linear(64, 50)
        self.after = nn.Linear(64, 64)


def test_conversion_stops_where_accelerate_s_does():
    with torch.device("meta"):
        model = Odd()
    convert_to_transformer_engine(model, HOPPER)
    # convert_model returns at the first linear layer of a level whose sizes are no multiples of 16.
    assert transformer_engine_linears(model) == ("inner.0", "one")
    assert type(model.inner[1]) is TransformerEngineLayerNorm
    assert type(model.after) is nn.Linear


def test_nothing_to_convert():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(50, 50))
    with pytest.raises(InputError, match="no linear layer that accelerate would convert"):
        convert_to_transformer_engine(model, HOPPER)


def planned(capsys, *words, gpus="2xH100"):
    main([QWEN, "--gpus", gpus, "--pin", "--seq-len", "512", "--json", "--quiet", "--precision", "fp8-mixed", *words])
    captured = capsys.readouterr()
    assert captured.err == ""
    document = json.loads(captured.out)
    return document, (document["plans"] + document["rejected"])[0]


def test_whole_plans(capsys):
    document, te = planned(capsys, "--strategy", "fsdp", "--set", "fp8.backend=te", gpus="8xH100")
    _, ao = planned(capsys, "--strategy", "fsdp", gpus="8xH100")
    assert "--fp8_backend te" in te["command"]
    assert "all_gather" not in te["command"]
    assert any("Transformer Engine 2.9" in entry["text"] for entry in document["assumptions"])
    memory = te["memory"]["at_peak"]
    layers = 28 * 7 + 1
    state = layers * (512 + 12_288 + 512 + 8_192) + 33_555_456
    assert memory["buffers"] - state == ao["memory"]["at_peak"]["buffers"]
    # FSDP2 lets go of gathered weights after forward, but not of their float8 copies, which are kept for backward.
    assert te["memory"]["peak_allocated_bytes"] - ao["memory"]["peak_allocated_bytes"] > 6e9
    assert te["speed"]["parts"]["forward"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gpus", "2xH100", "--set", "fp8.backend=te"), "needs --precision fp8-mixed"),
        (("--gpus", "2xcpu", "--precision", "fp8-mixed", "--set", "fp8.backend=te"), "computes on GPUs alone"),
        (
            ("--gpus", "2xH100", "--precision", "fp8-mixed", "--set", "fp8.backend=te", "--set", "fp8.all_gather=true"),
            "about torchao's weights",
        ),
        (
            ("--gpus", "2xH100", "--precision", "fp8-mixed", "--set", "fp8.backend=te", "--seq-len", "500"),
            "float8 rows in multiples of 16",
        ),
        (("--gpus", "2xH100", "--precision", "fp8-mixed", "--set", "fp8.backend=msamp"), "use torchao or te"),
    ],
)
def test_one_line(capsys, words, message):
    assert main([QWEN, *words, "--quiet"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_tied_output_layer(capsys):
    assert main(["Qwen/Qwen2-0.5B", "--gpus", "1xH100", "--precision", "fp8-mixed", "--set", "fp8.backend=te"]) == 2
    assert "lm_head a weight of its own" in capsys.readouterr().err


def test_a_machine_needs_the_package_and_the_launcher_names_it(capsys, tmp_path):
    path = tmp_path / "plan.json"
    words = ("--gpus", "8xH100", "--pin", "--strategy", "fsdp", "--seq-len", "512", "--precision", "fp8-mixed")
    main([QWEN, *words, "--set", "fp8.backend=te", "--save", str(path)])
    capsys.readouterr()
    packages = need_of(saved_from_json(path.read_text(), str(path))).packages
    assert "transformer-engine" in packages
    assert "torchao" not in packages
