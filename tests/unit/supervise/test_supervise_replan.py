"""The ladder after out of memory, and what is said about the estimate that was wrong."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.deepspeed.config import deepspeed_config
from gpu_plan.executor.launch.prepare import draw
from gpu_plan.executor.records.rank import Actual, RankError, RankRecord, StepSummary
from gpu_plan.executor.script.read import read_script
from gpu_plan.executor.supervise.causes.estimate import explain_estimate, real_capacity
from gpu_plan.executor.supervise.ladder.planner_process import Evaluated, asked_again, evaluate
from gpu_plan.executor.supervise.ladder.replan import replan
from gpu_plan.executor.supervise.ladder.rungs import Abilities, change_words, rungs
from gpu_plan.planner.options.given.document import asked_from_json, asked_to_json
from gpu_plan.planner.options.given.named import namespace
from gpu_plan.planner.plan.figures import StrategyChoice
from tests.support.fault_job import job, saved_plan
from tests.support.plan_example import memory

GIB = 2**30


def choice(name: str = "ddp", micro: int = 8, steps: int = 1, **more: object) -> StrategyChoice:
    return StrategyChoice(
        name=name, data_parallel=2, micro_batch_size=micro, gradient_accumulation_steps=steps, precision="fp32",
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def failed(message: str = "no", **actual: object) -> RankRecord:
    return RankRecord(
        run_id="r", attempt=1, rank=1, local_rank=1, world_size=2, pid=1, host="h", device="cuda:1", status="oom",
        started=0.0, updated=1.0, error=RankError(type="torch.OutOfMemoryError", message=message),
        actual=Actual(**actual),  # type: ignore[arg-type]
    )  # fmt: skip


def shape(strategy: StrategyChoice) -> tuple[object, ...]:
    return (
        strategy.name, strategy.micro_batch_size, strategy.gradient_accumulation_steps, strategy.checkpointing,
        strategy.offload,
    )  # fmt: skip


def test_the_ladder_is_batch_then_checkpointing_then_stage_then_offload() -> None:
    found = [shape(rung) for rung in rungs(choice(micro=4), Abilities())]
    assert found == [
        ("ddp", 2, 2, "none", "none"),
        ("ddp", 1, 4, "none", "none"),
        ("ddp", 1, 4, "full", "none"),
        ("fsdp", 1, 4, "full", "none"),
        ("fsdp", 1, 4, "full", "all"),
        ("zero2", 1, 4, "full", "none"),
        ("zero2", 1, 4, "full", "optimizer"),
        ("zero3", 1, 4, "full", "none"),
        ("zero3", 1, 4, "full", "optimizer"),
        ("zero3", 1, 4, "full", "all"),
    ]


@pytest.mark.parametrize("name", ["single", "ddp", "fsdp", "zero1", "zero2", "zero3"])
@pytest.mark.parametrize(("micro", "steps"), [(1, 1), (6, 1), (5, 3), (32, 2)])
def test_every_rung_keeps_the_effective_batch_and_differs(name: str, micro: int, steps: int) -> None:
    before = choice(name, micro, steps)
    found = list(rungs(before, Abilities()))
    assert all(rung.global_batch_size == before.global_batch_size for rung in found)
    assert len({shape(rung) for rung in found} | {shape(before)}) == len(found) + 1


def test_what_cannot_change_is_left_as_it_is() -> None:
    able = Abilities(batch=False, checkpointing=False, deepspeed=False)
    assert [shape(rung) for rung in rungs(choice(), able)] == [
        ("fsdp", 8, 1, "none", "none"),
        ("fsdp", 8, 1, "none", "all"),
    ]


def test_change_in_words() -> None:
    after = choice("fsdp", 4, 2, checkpointing="full")
    assert change_words(choice(), after) == (
        "micro batch 8 → 4 with accumulation 1 → 2, checkpointing none → full, strategy ddp → fsdp;"
        " the global batch stays 16"
    )


CUDA = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 40.00 GiB of which 1.00 GiB is free."
    " Process 4 has 9.00 GiB memory in use. Including non-PyTorch memory, this process has 30.00 GiB memory in use."
)


def test_capacity_and_others_are_read_from_cudas_message() -> None:
    ranks = [failed(CUDA)]
    assert real_capacity(ranks) == 31 * GIB
    plan = replace(saved_plan().plan, memory=memory(capacity=80 * GIB, parameters=10 * GIB))
    lines = explain_estimate(replace(saved_plan(), plan=plan), ranks, {})
    assert lines[0] == "the device has 40.0 GiB, the plan assumes 80.0 GiB"
    assert lines[1] == "other processes hold 9.0 GiB of the device"
    assert lines[2].startswith("30.0 GiB were in use, the plan says at most")


def test_the_tightest_of_several_ranks_is_the_capacity_and_units_are_binary() -> None:
    def full(total: str, free: str, used: str) -> str:
        return (
            f"CUDA out of memory. GPU 0 has a total capacity of {total} of which {free} is free. Including non-PyTorch"
            f" memory, this process has {used} memory in use."
        )

    ranks = [
        failed(full("16.00 GiB", "512.00 MiB", "15.00 GiB")),
        failed(full("12.00 GiB", "256.00 KiB", "11.00 GiB")),
    ]
    assert real_capacity(ranks[:1]) == 15 * GIB + 512 * 2**20
    assert real_capacity(ranks) == 11 * GIB + 256 * 2**10


def test_what_is_offloaded_is_only_offloaded_further() -> None:
    able = Abilities(batch=False, checkpointing=False)
    found = [(one.name, one.offload) for one in rungs(choice("zero3", offload="optimizer"), able)]
    assert found
    assert all(offload != "optimizer" for name, offload in found if name == "zero3")


def test_another_job_than_planned_explains_the_estimate() -> None:
    lines = explain_estimate(saved_plan(), [failed(micro_batch_size=32, parameters=10_000, strategy="ddp")], {})
    assert lines == (
        "parameters: 10,000 instead of 272",
        "rows in a micro batch: 32 instead of 4",
    )


def test_a_limit_of_the_process_explains_the_estimate() -> None:
    (line,) = explain_estimate(saved_plan(), [failed(micro_batch_size=4)], {1: GIB})
    assert "1.0 GiB of data" in line
    assert "8.0 GiB" in line


def test_a_lower_limit_is_concluded_when_nothing_else_is_seen() -> None:
    rank = replace(failed(), summary=StepSummary(steps=3, peak_resident_bytes=GIB))
    (line,) = explain_estimate(saved_plan(), [rank], {})
    assert "the real limit is lower than assumed" in line


def test_phases_are_compared_on_a_device() -> None:
    figures = replace(
        memory(capacity=8 * GIB, activations=4 * GIB), phase_peaks={"forward": 3 * GIB, "backward": 4 * GIB}
    )
    plan = replace(saved_plan(), plan=replace(saved_plan().plan, memory=figures))
    summary = StepSummary(steps=2, peak_allocated_bytes=6 * GIB, phases={"forward": 3 * GIB, "backward": 6 * GIB})
    lines = explain_estimate(plan, [replace(failed(), summary=summary)], {})
    assert lines == ("backward peaked at 6.0 GiB, planned 4.0 GiB",)


def answering(*sizes: int | None) -> object:
    """A planner that knows these sizes, one after another; None for a refusal."""
    left = list(sizes)

    def evaluate(job: Job, strategy: StrategyChoice) -> Evaluated:
        saved = job.saved
        size = left.pop(0)
        if size is None:
            return Evaluated(saved=None, reason="it does not fit")
        figures = memory(capacity=80 * GIB, parameters=size)
        return Evaluated(saved=replace(saved, plan=replace(saved.plan, strategy=strategy, memory=figures)))

    return evaluate


def test_the_first_rung_within_what_the_device_gave_is_taken(tmp_path: Path) -> None:
    plan = replace(saved_plan().plan, memory=memory(capacity=80 * GIB, parameters=70 * GIB))
    asked = replace(job(tmp_path), saved=replace(saved_plan(), plan=plan))
    evaluate = answering(40 * GIB, 20 * GIB)
    found = replan(asked, [failed(CUDA)], tmp_path, data_limits={}, evaluate_one=evaluate)  # type: ignore[arg-type]
    assert found.job is not None
    assert found.job.saved.plan.strategy.micro_batch_size == 1
    assert "micro batch 4 → 1 with accumulation 1 → 4" in found.changes[0]


def test_a_rung_that_would_begin_again_comes_last(tmp_path: Path) -> None:
    found = replan(
        job(tmp_path, micro_batch=1), [failed()], tmp_path, data_limits={},
        keeps=lambda strategy: strategy.name != "ddp", evaluate_one=answering(1000),  # type: ignore[arg-type]
    )  # fmt: skip
    assert found.job is not None
    assert found.job.saved.plan.strategy.name == "fsdp"


def test_where_nothing_takes_less_it_is_said(tmp_path: Path) -> None:
    nothing = answering(*[None] * 20)
    found = replan(job(tmp_path), [failed()], tmp_path, data_limits={}, evaluate_one=nothing)  # type: ignore[arg-type]
    assert found.job is None
    assert "no plan with the same effective batch takes less" in found.changes[0]
    assert "it does not fit" in found.changes[0]


def test_a_model_that_cannot_be_checkpointed_climbs_without(tmp_path: Path) -> None:
    asked: list[tuple[object, ...]] = []

    def evaluate(job: Job, strategy: StrategyChoice) -> Evaluated:
        asked.append(shape(strategy))
        if strategy.checkpointing == "full":
            return Evaluated(saved=None, reason="this model does not support checkpointing", impossible=True)
        return Evaluated(saved=None, reason="it does not fit")

    found = replan(job(tmp_path, micro_batch=1), [failed()], tmp_path, data_limits={}, evaluate_one=evaluate)
    assert found.job is None
    assert asked[:3] == [
        ("ddp", 1, 1, "full", "none"),
        ("fsdp", 1, 1, "none", "none"),
        ("fsdp", 1, 1, "none", "all"),
    ]
    assert len(asked) == len(set(asked))


FIXED = """
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
model = DistributedDataParallel(made())
loader = DataLoader(list(range(64)), batch_size=4)
for x in loader:
    model(x).sum().backward()
"""


def test_a_script_that_fixes_its_batch_keeps_it_and_that_is_said(tmp_path: Path) -> None:
    script = tmp_path / "fixed.py"
    script.write_text(FIXED)
    found = replan(
        job(tmp_path, script=script), [failed()], tmp_path, data_limits={}, evaluate_one=answering(1000)  # type: ignore[arg-type]
    )  # fmt: skip
    assert found.job is not None
    assert found.job.saved.plan.strategy.micro_batch_size == 4
    assert any("has no option for its batch" in line for line in found.changes)


def test_the_planner_is_asked_for_the_same_job() -> None:
    asked = job(Path("/nowhere"), "--lr", "1")
    found = asked_again(asked, choice("fsdp", 2, 4, checkpointing="full", offload="all"))
    assert (found.model, found.gpus, found.options["pin"]) == ("tiny", "2xcpu", True)
    assert found.options["strategy"] == "fsdp"
    assert (found.options["micro-batch"], found.options["grad-accum"]) == ("2", "4")
    assert (found.options["checkpointing"], found.options["offload"]) == ("full", "all")
    assert "seq-len" not in found.options
    assert asked_from_json(asked_to_json(found, ("--lr", "1"))) == (found, ("--lr", "1"))


def test_a_plan_of_another_hand_asks_for_no_option() -> None:
    """A saved plan is a file: what it says of itself stays a value, or is refused."""
    asked = job(Path("/nowhere"))
    for spoilt in ("--execute=evil.py", "--help", "a\nb"):
        foreign = replace(asked.saved, model=replace(asked.saved.model, id=spoilt))
        answer = evaluate(replace(asked, saved=foreign), choice())
        assert (answer.saved, answer.impossible) == (None, True)
        assert answer.reason.startswith("model ")
    foreign = replace(asked.saved, workload={**asked.saved.workload, "precision": "--trust-remote-code"})
    found = asked_again(replace(asked, saved=foreign), choice())
    assert found.options["precision"] == "--trust-remote-code"
    assert not namespace(found).trust_remote_code


UNCLIPPED = """
from accelerate import Accelerator
accelerator = Accelerator()
with accelerator.accumulate(model):
    accelerator.backward(loss)
    CLIP
"""


def climbed(folder: Path, clip: str) -> tuple[StrategyChoice | None, object, tuple[str, ...]]:
    """The first rung from DDP that is ZeRO, what DeepSpeed's file says there of clipping, and why others were not."""
    script = folder / "loop.py"
    script.write_text(UNCLIPPED.replace("CLIP", clip))

    def zero_alone(asked: Job, strategy: StrategyChoice) -> Evaluated:
        if not strategy.name.startswith("zero"):
            return Evaluated(saved=None, reason="it does not fit")
        plan = replace(asked.saved.plan, strategy=strategy, verdict="tight", memory=None, speed=None)
        return Evaluated(saved=replace(asked.saved, plan=plan))

    found = replan(
        job(folder, script=script, micro_batch=1), [failed()], folder, data_limits={}, evaluate_one=zero_alone
    )
    if found.job is None:
        return None, None, found.changes
    drawn = draw(found.job, read_script(script), folder=folder)
    return found.job.saved.plan.strategy, deepspeed_config(drawn.target)["gradient_clipping"], found.changes


def test_a_rung_never_switches_clipping_on(tmp_path: Path) -> None:
    strategy, norm, _ = climbed(tmp_path, "pass")
    assert strategy is not None
    assert (strategy.name, norm) == ("zero2", 0.0)
    assert climbed(tmp_path, "accelerator.clip_grad_norm_(parameters, 0.5)")[1] == 0.5


def test_a_rung_that_would_lose_the_scripts_clipping_is_not_climbed(tmp_path: Path) -> None:
    strategy, _, changes = climbed(tmp_path, "accelerator.clip_grad_norm_(parameters, norm_of(step))")
    assert strategy is None
    assert "a norm that the script's text does not tell" in changes[0]
