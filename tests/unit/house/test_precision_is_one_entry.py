"""A precision and a way to train adapters are one entry each: toys are found by everything that asks about them."""

from collections.abc import Mapping

import pytest

from gpu_plan.executor.deviations import deviations
from gpu_plan.executor.doctor.intent import intent_of
from gpu_plan.executor.doctor.machine import need_of
from gpu_plan.executor.launch.accelerate.config import accelerate_config
from gpu_plan.executor.launch.deepspeed.config import deepspeed_config
from gpu_plan.executor.launch.not_applied import not_applied
from gpu_plan.executor.records.rank import Actual, RankRecord, StepSummary
from gpu_plan.executor.script.accelerator import AcceleratorUse
from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.from_config.convert import convert
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.options.generation import read_given as read_inference
from gpu_plan.planner.options.parser import job_parser
from gpu_plan.planner.options.training.adapters import adapter_of
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.strategy.base import autocast_regime
from gpu_plan.planner.strategy.kinds.zero2 import Zero2
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.adapters import ADAPTERS, AdapterTraits, Peft, adapters_on, explored_adapters
from gpu_plan.planner.workload.precisions import (
    PRECISIONS,
    Precision,
    PrecisionTraits,
    explored_precisions,
    mixed_in,
    stored_precision,
)
from gpu_plan.planner.workload.training import Stack
from tests.support.launch_plans import saved
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import tiny_trace
from tests.unit.launch.test_launch_config import target

MIXED = PrecisionTraits(
    name="toy-mixed", dtype="float16", explored=15, help="nobody's", mixed=True, scales_loss=True, launcher="toy16",
    deepspeed="fp16",
)  # fmt: skip
PURE = PrecisionTraits(name="toy16", dtype="float16", explored=35, generates=True, with_masters="toy-mixed")
TOY_LORA = AdapterTraits(name="toy-lora", explored=25, help="nobody's", packages=("peft", "toylib"))
TOY_QLORA = AdapterTraits(name="toy-qlora", explored=40, base="int8", packages=("peft", "toybits"))


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    for precision in (MIXED, PURE):
        monkeypatch.setitem(PRECISIONS, precision.name, precision)  # type: ignore[arg-type]
    for adapters in (TOY_LORA, TOY_QLORA):
        monkeypatch.setitem(ADAPTERS, adapters.name, adapters)  # type: ignore[arg-type]


def help_words() -> str:
    return " ".join(job_parser().format_help().split())


# -- a precision ---------------------------------------------------------------------------------------------------


def test_a_precision_is_an_option_with_its_words_in_the_help() -> None:
    assert read_given({"precision": "toy-mixed"}, ()).precision == "toy-mixed"
    assert "fp8-mixed (torchao), toy-mixed (nobody's), toy16" in help_words()
    with pytest.raises(UsageError, match=r"fp8-mixed, toy-mixed, toy16\. Did you mean toy-mixed"):
        read_given({"precision": "toy-mix"}, ())


def test_inference_loads_what_says_so() -> None:
    assert read_inference({"precision": "toy16"}, ()).precision == "toy16"
    with pytest.raises(UsageError, match=r"toy-mixed is about training: .* as fp32, bf16, fp16 or toy16 "):
        read_inference({"precision": "toy-mixed"}, ())


def test_what_a_rank_computes_in_follows() -> None:
    mixed = autocast_regime(Precision("toy-mixed"), Stack.PLAIN)
    assert mixed == Regime(weights="float32", autocast="float16", outputs_to_fp32=False)
    assert autocast_regime(Precision("toy16"), Stack.PLAIN) == Regime(weights="float16")
    trace = tiny_trace([(100, 4)], element_bytes=2)
    notes = Zero2().rank(small_context(trace, precision=Precision("toy16"))).notes
    assert any("behind toy16 weights: pure toy16 equals toy-mixed here" in note for note in notes)


def test_the_launch_files_say_it() -> None:
    assert accelerate_config(target("fsdp", precision="toy-mixed"))["mixed_precision"] == "toy16"
    config = deepspeed_config(target("zero2", precision="toy-mixed"))
    assert (config["fp16"]["enabled"], config["bf16"]) == (True, {"enabled": False})
    left = not_applied(target("ddp", precision="toy16"), AcceleratorUse())
    assert "pure toy16: the script has to load its model in float16" in left


def test_the_doctor_knows_it() -> None:
    assert intent_of(saved(precision="toy-mixed")).scales_loss
    assert not intent_of(saved(precision="toy16")).scales_loss
    parameters = saved().model.parameters
    assert need_of(saved("ddp", precision="toy16")).checkpoint_bytes == (2 + 4) * parameters


@pytest.mark.parametrize(("seen", "lines"), [("toy16", ()), ("no", ("no mixed precision",)), ("bf16", ("bf16-mixed",))])
def test_a_run_in_another_is_told(seen: str, lines: tuple[str, ...]) -> None:
    record = RankRecord(
        run_id="run", attempt=1, rank=0, local_rank=0, world_size=1, pid=1, host="here", device="cuda:0", status="done",
        started=0.0, updated=1.0, actual=Actual(mixed_precision=seen), summary=StepSummary(),
    )  # fmt: skip
    found = [
        line for line in deviations(saved("single", "1xH100", precision="toy-mixed"), [record]) if "precision" in line
    ]
    assert found == [f"the precision was {line}, planned is toy-mixed" for line in lines]


def test_accelerates_file_means_it() -> None:
    content = {"distributed_type": "MULTI_GPU", "num_processes": 2, "mixed_precision": "toy16"}
    said = {one.option: one.value for one in convert(content, "a.yaml", _no_other_file).options}
    assert said["precision"] == "toy-mixed"


def test_the_explorer_offers_it_where_it_says() -> None:
    assert explored_precisions()[:3] == ("bf16-mixed", "toy-mixed", "fp16-mixed")
    assert explored_precisions(inference=True) == ("bf16", "toy16", "fp16", "fp32")


def test_one_that_is_unknown_is_refused_and_not_guessed() -> None:
    with pytest.raises(InputError, match="precision 'fp2' is not known to this version"):
        stored_precision("fp2")
    assert mixed_in("float16") == "fp16-mixed", "of two that compute alike the first is meant"


# -- adapters ------------------------------------------------------------------------------------------------------


def test_adapters_are_an_option_with_their_words_in_the_help() -> None:
    assert read_given({"peft": "toy-lora"}, ()).peft == "toy-lora"
    assert "qlora (bitsandbytes NF4 base), toy-lora (nobody's), toy-qlora" in help_words()
    with pytest.raises(UsageError, match="--lora-rank needs --peft lora or --peft qlora or --peft toy-lora"):
        read_given({"lora-rank": "8"}, ())
    adapter = adapter_of(read_given({"peft": "toy-lora"}, ()), parse_cluster("1xH100"))
    assert adapter is not None
    assert adapter.key() == "toy-lora rank=16 targets= dropout=0.0"


def test_settings_of_a_quantised_base_are_for_those_that_quantise() -> None:
    assert read_given({"peft": "toy-qlora"}, ("quant.base=fp4",)).peft == "toy-qlora"
    with pytest.raises(UsageError, match="needs --peft qlora, not toy-lora"):
        read_given({"peft": "toy-lora"}, ("quant.base=fp4",))


def test_what_is_trained_and_what_is_frozen_follows() -> None:
    def regime(name: str) -> Regime:
        return autocast_regime(Precision("bf16-mixed"), Stack.ACCELERATE, Peft(name))

    assert regime("toy-lora") == regime("lora") != regime("none")
    assert regime("toy-qlora") == regime("qlora") != regime("lora")


def test_the_doctor_asks_for_what_adapters_need() -> None:
    assert need_of(saved("ddp", peft=Peft("toy-lora"))).packages[-2:] == ("peft", "toylib")
    assert need_of(saved("ddp", peft=Peft("toy-qlora"))).packages[-2:] == ("peft", "toybits")
    left = not_applied(target("ddp", peft=Peft("toy-lora")), AcceleratorUse())
    assert "--peft toy-lora: the script wraps its model with peft itself" in left


def test_other_tools_files_mean_the_first_of_their_kind() -> None:
    assert (adapters_on(quantised=False), adapters_on(quantised=True)) == ("lora", "qlora")
    assert explored_adapters() == ("none", "lora", "toy-lora", "qlora", "toy-qlora")


def _no_other_file(path: str, key: str) -> Mapping[str, object]:
    raise AssertionError(path)
