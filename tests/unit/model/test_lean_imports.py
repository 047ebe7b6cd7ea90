"""transformers imported without what no plan asks of it, each case in a process of its own."""

import subprocess
import sys
import textwrap

import pytest

HEAVY = ("torch._dynamo", "torch.distributed.tensor", "sympy", "scipy.optimize")
LEAN = "from gpu_plan.planner.model.build.lean.imports import lean_imports, dynamo_away\n"


def told(code: str) -> str:
    """What a fresh process prints."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_class_comes_without_the_heavy_packages_and_is_what_it_is_without_the_window() -> None:
    lean = told(
        f"""
        {LEAN.strip().replace(chr(10), "; ")}
        import sys
        with lean_imports():
            from transformers.models.llama.modeling_llama import LlamaForCausalLM as found
        print([name for name in {HEAVY} if name in sys.modules])
        print(found.__mro__)
        import transformers
        print(sorted(transformers._import_structure)[:5], len(dir(transformers)), len(dir(transformers.models)))
        """
    ).splitlines()
    plain = told(
        """
        from transformers.models.llama.modeling_llama import LlamaForCausalLM as found
        print(found.__mro__)
        import transformers
        print(sorted(transformers._import_structure)[:5], len(dir(transformers)), len(dir(transformers.models)))
        """
    ).splitlines()
    assert lean[0] == "[]"
    assert lean[1:] == plain


def test_names_are_fetched_when_they_are_used() -> None:
    assert told(
        """
        from gpu_plan.planner.model.build.lean.imports import lean_imports
        import sys
        with lean_imports():
            import transformers.modeling_utils
            from transformers.distributed import sharding_utils
            from transformers.loss import loss_for_object_detection as loss
        import numpy, torch
        print(isinstance(torch.zeros(1), sharding_utils.DTensor), "torch.distributed.tensor" in sys.modules)
        print(loss.linear_sum_assignment(numpy.eye(2))[1].tolist(), "scipy.optimize" in sys.modules)
        print(sharding_utils.DTensor.from_local.__name__)
        from torch.distributed.tensor import DTensor
        print(isinstance(torch.zeros(1), sharding_utils.DTensor), issubclass(DTensor, sharding_utils.DTensor))
        """
    ).splitlines() == ["False False", "[1, 0] True", "from_local", "False True"]


def test_what_was_marked_for_dynamo_is_told_to_it_when_it_comes() -> None:
    assert told(
        """
        from gpu_plan.planner.model.build.lean.imports import lean_imports, dynamo_away
        import sys, torch
        with lean_imports():
            import transformers.modeling_utils
        marked = transformers.modeling_utils.PreTrainedModel.__dict__
        with dynamo_away():
            assert torch.utils.checkpoint.checkpoint(lambda x: x * 2, torch.ones(2, requires_grad=True),
                                                     use_reentrant=False).tolist() == [2, 2]
            @torch.compiler.disable
            def apart(x):
                return x + torch.compiler.is_compiling()
        print("torch._dynamo" in sys.modules, "_dynamo" in vars(torch), apart(torch.zeros(1)).item())
        counted = torch.compile(lambda x: apart(x) + 1, backend="eager")
        print(counted(torch.zeros(1)).item(), "torch._dynamo" in sys.modules, type(torch._dynamo).__name__)
        """
    ).splitlines() == ["False False 0.0", "1.0 True module"]


@pytest.mark.parametrize("before", ["", "import torch._dynamo\n"])
def test_the_window_leaves_nothing_behind(before: str) -> None:
    assert (
        told(
            f"""
        {before.strip()}
        import builtins
        from gpu_plan.planner.model.build.lean.imports import lean_imports
        real = builtins.__import__
        with lean_imports():
            with lean_imports():
                import transformers.modeling_utils
            from transformers.utils import import_utils
        import torch
        print(builtins.__import__ is real, import_utils.fetch__all__.__module__, "_dynamo" in vars(torch))
        """
        )
        == f"True transformers.utils.import_utils {bool(before)}"
    )


def test_what_others_write_out_is_there_when_it_is_asked_for() -> None:
    """peft writes `torch.distributed.tensor.DTensor` and imports nothing for it."""
    assert told(
        """
        from gpu_plan.planner.model.build.lean.imports import lean_imports
        import sys, torch
        with lean_imports():
            import transformers.modeling_utils
        print("torch.distributed.tensor" in sys.modules, torch.distributed.tensor.DTensor.__name__)
        print(torch.fx.experimental.symbolic_shapes.ShapeEnv.__name__, hasattr(torch.distributed, "nothing"))
        """
    ).splitlines() == ["False DTensor", "ShapeEnv False"]


def test_a_decorator_compiles_at_the_first_call() -> None:
    assert told(
        """
        from gpu_plan.planner.model.build.lean.imports import lean_imports
        import sys, torch
        with lean_imports():
            @torch.compile(backend="eager")
            def doubled(x):
                return x * 2
        print("torch._dynamo" in sys.modules, doubled.__name__)
        print(doubled(torch.ones(1)).item(), "torch._dynamo" in sys.modules)
        """
    ).splitlines() == ["False doubled", "2.0 True"]


def test_sizes_are_plain_numbers_whatever_holds_them() -> None:
    asked = f"""
        {LEAN.strip().replace(chr(10), "; ")}
        import sys, torch
        given, weight = torch.ones(2, 4, device="meta"), torch.ones(4, device="meta")
        with dynamo_away():
            print(torch._refs.native_layer_norm(given, weight.shape, weight, weight, 0.1)[0].shape)
        print("sympy" in sys.modules)
        """
    assert told(asked) == "torch.Size([2, 4])\nFalse"


def test_fake_tensors_read_their_settings_without_dynamo() -> None:
    asked = f"""
        {LEAN.strip().replace(chr(10), "; ")}
        import sys, torch
        from gpu_plan.planner.model.build.lean.dynamo import _Settings
        from torch._subclasses.fake_tensor import FakeTensorMode
        with dynamo_away(), FakeTensorMode() as mode:
            print(torch.empty(3).mul(2).shape, "torch._dynamo" in sys.modules, mode.cache_enabled)
        import torch._dynamo.config as real
        print([name for name, value in vars(_Settings).items() if name[:2] != "__" and getattr(real, name) != value])
        """
    assert told(asked) == "torch.Size([3]) False True\n[]"
