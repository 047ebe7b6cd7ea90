"""Parts of a capture that need no child: what a batch is counted by, evaluators, launchers, counters, kernels."""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from gpu_plan.planner.capture.answers.devices.cuda import cuda_answers
from gpu_plan.planner.capture.answers.devices.graphs import Graphs
from gpu_plan.planner.capture.answers.distributed import launched_by_torchrun
from gpu_plan.planner.capture.answers.generation import Generated, generating
from gpu_plan.planner.capture.answers.loaders import loaders
from gpu_plan.planner.capture.request import PlannedDevice
from gpu_plan.planner.capture.watch.evaluators import Evaluators
from gpu_plan.planner.capture.watch.step.given import lengths_listed, samples_of
from gpu_plan.planner.model.build.lean.torchao import torchao_asked_again, without_torchao
from gpu_plan.planner.trace.kernels.attention import AttentionBackend, AttentionCall, choose_cuda_backend


def test_texts_and_lists_of_tensors_are_counted_by_their_list() -> None:
    docs = torch.zeros(10)
    given = (["query"] * 16, [["document"] * 10] * 16, [docs] * 16)
    assert lengths_listed((given, {"prompt": None})) == {16, 10}
    assert samples_of(10, 16, {16, 10}) == 16
    assert samples_of(16, 8, set()) == 8  # pairs
    assert samples_of(4, 16, set()) == 4  # a batch cut by its loop
    assert samples_of(4, None, {4}) == 4


def test_an_evaluator_is_not_run_and_gives_its_main_score() -> None:
    module = ModuleType("evaluator")

    class BaseEvaluator:
        primary_metric = "map"

    module.BaseEvaluator = BaseEvaluator  # type: ignore[attr-defined]
    evaluators = Evaluators()
    evaluators._take(module)

    class Ranking(BaseEvaluator):
        def __call__(self, model: Any) -> dict[str, float]:
            raise AssertionError("it was run")

    scores: Any = Ranking()(None)
    assert dict(scores) == {"map": 0.0}
    assert scores["ndcg"] == 0.0
    assert evaluators.left_out == 1


@pytest.mark.parametrize(
    ("text", "launched"),
    [("init_device_mesh('cuda', (2,))", True), ("os.environ['LOCAL_RANK']", True), ("model.fit()", False)],
)
def test_what_a_launcher_starts_is_read_from_its_text(tmp_path: Path, text: str, launched: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    assert launched_by_torchrun(script, 1) is launched


def test_a_loader_keeps_none_of_its_workers_limits() -> None:
    with loaders(None):
        loader = DataLoader([1, 2], batch_size=2, num_workers=4, timeout=600, prefetch_factor=4)
    assert (loader.num_workers, loader.timeout) == (0, 0)
    assert [batch.tolist() for batch in loader] == [[1, 2]]


def test_every_counter_of_the_allocator_is_answered() -> None:
    device = PlannedDevice(name="A100", total_bytes=80 * 10**9, capability_major=8, sm_count=108)
    with cuda_answers(device, 1):
        assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0


def test_no_fused_kernel_broadcasts_a_batch() -> None:
    def call(keys: int) -> AttentionCall:
        query, key = torch.empty(4, 8, 16, 64, device="meta"), torch.empty(keys, 8, 16, 64, device="meta")
        return AttentionCall(
            query=query.half(), key=key.half(), value=key.half(),
            mask=None, dropout=0.0, causal=False, scale=None, grouped=False,
        )  # fmt: skip

    assert choose_cuda_backend((8, 0), call(4)) is AttentionBackend.FLASH
    assert choose_cuda_backend((8, 0), call(1)) is AttentionBackend.MATH


@pytest.mark.parametrize(
    ("given", "rows", "length"),
    [
        ({"input_ids": torch.zeros(16, 40), "max_length": 128, "num_beams": 4}, 16, 128),
        ({"input_features": torch.zeros(2, 80, 3000), "max_new_tokens": 30}, 2, 31),
        ({"input_ids": torch.zeros(4, 8), "num_return_sequences": 3}, 12, 64),
    ],
)
def test_an_encoder_decoder_generates_full_length_without_being_run(
    given: dict[str, Any], rows: int, length: int
) -> None:
    """Seq2SeqTrainer.evaluate with predict_with_generate before train() ran the decoder once for each token."""
    config = SimpleNamespace(
        output_scores=False, num_return_sequences=1, max_new_tokens=None, max_length=64, return_dict_in_generate=False
    )
    model = SimpleNamespace(generation_config=config, config=SimpleNamespace(is_encoder_decoder=True))

    def original(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was run")

    generated = Generated()
    generate = generating(SimpleNamespace(), original, generated, lambda *_: False)
    assert generate(model, **given).shape == (rows, length)
    assert generated.rows == 0  # evaluation says nothing of a step's samples
    assert "1 generation of an encoder-decoder" in generated.lines()[0]
    with pytest.raises(AssertionError, match="it was run"):
        generate(model, **given, output_scores=True)


def test_what_looks_at_a_gpu_is_answered() -> None:
    """Memory histories, the driver's readings, profilers and graphs: a build without CUDA fails at each of them."""
    t4 = PlannedDevice(name="T4", total_bytes=15 * 10**9, capability_major=7, capability_minor=5, sm_count=40)
    graphs, cuda = Graphs(), torch.cuda
    layer = torch.nn.Linear(2, 2)
    with cuda_answers(t4, 2, graphs):
        cuda.memory._record_memory_history(max_entries=100_000)
        cuda.memory._dump_snapshot("history.pickle")
        cuda.memory.reset_peak_memory_stats()
        cuda.profiler.start()
        cuda.set_stream(cuda.Stream())
        cuda.set_sync_debug_mode("warn")
        assert cuda.memory._snapshot()["segments"] == cuda.memory_snapshot() == []
        assert cuda.temperature() == cuda.power_draw() == cuda.memory.max_memory_allocated(0) == 0
        assert cuda.get_allocator_backend() == "native"
        assert cuda.can_device_access_peer(0, 1)
        assert not cuda.is_current_stream_capturing()
        properties = cuda.get_device_properties(0)
        assert (properties.max_threads_per_multi_processor, properties.shared_memory_per_multiprocessor) == (
            1024,
            65536,
        )
        with pytest.raises(AttributeError, match="L2_cache_size is not among the properties that are known of the pla"):
            _ = properties.L2_cache_size
        assert getattr(properties, "L2_cache_size", 0) == 0
        assert cuda.random.get_rng_state().dtype is torch.uint8
        graph, ran = cuda.CUDAGraph(), []
        with cuda.graph(graph, pool=cuda.graph_pool_handle()):
            ran.append(1)
        graph.replay()
        assert cuda.make_graphed_callables(layer, (torch.zeros(1, 2),)) is layer
    assert (ran, graphs.recorded) == ([1], 2)
    assert "CUDA graphs" in graphs.lines()[0]
    assert Graphs().lines() == ()


def test_a_script_is_told_of_torchao_as_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers is imported without it, and kept its answer: "You need to have torchao"."""
    from transformers.utils import import_utils

    # Another test of this process may have imported it.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchao"]:
        monkeypatch.delitem(sys.modules, name)
    with without_torchao():
        import_utils.is_torchao_available.cache_clear()
        assert not import_utils.is_torchao_available()
    torchao_asked_again()
    assert import_utils.is_torchao_available() == (find_spec("torchao") is not None)
