"""A strategy is one file: a toy in a folder of its own is found wherever strategies are; no name stands elsewhere."""

import ast
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

import gpu_plan.tui
from gpu_plan.executor import names
from gpu_plan.executor.checkpoints.find import Checkpoint
from gpu_plan.executor.checkpoints.manifest import DCP, DEEPSPEED, REPLICATED, Manifest
from gpu_plan.executor.checkpoints.resume import decide_resume
from gpu_plan.executor.deviations import deviations
from gpu_plan.executor.doctor.intent import Intent
from gpu_plan.executor.doctor.machine.need import need_of
from gpu_plan.executor.doctor.script import examine_script
from gpu_plan.executor.launch.accelerate.config import accelerate_config
from gpu_plan.executor.launch.engines.registry import find_engine
from gpu_plan.executor.launch.environment import strategy_names
from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.records.rank import Actual, RankRecord
from gpu_plan.executor.runner.observe.wrapping import strategy_called
from gpu_plan.executor.script.read import Script
from gpu_plan.executor.supervise.ladder.rungs import Abilities, rungs
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.options.parser import job_parser
from gpu_plan.planner.options.settings import SETTINGS
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.plan.figures import StrategyChoice
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.search.training.candidates import Batch, families
from gpu_plan.planner.search.training.evaluate import Evaluator
from gpu_plan.planner.search.training.told.command import launch_command
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.strategy import kinds
from gpu_plan.planner.strategy.known import all_traits, known_traits, strategies, traits_of
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.workload.training import Checkpointing, Precision, Workload
from gpu_plan.reports.plan.words import strategy_words
from tests.support.launch_plans import saved
from tests.support.own_sources import quoting
from tests.support.seeds import SEEDS
from tests.support.tiny_trace import tiny_trace

ROOT = Path(__file__).parents[3]
TOY = '''
"""Shards the model as FSDP2 does, and replays as one replica: enough for a test."""

from gpu_plan.planner.strategy.base import RankContext, RankPlan, autocast_regime
from gpu_plan.planner.strategy.replica import single_rank
from gpu_plan.planner.strategy.traits import (
    Checkpoint, Compiled, Engine, Fault, Form, HasTraits, Host, Ladder, Offload, Searched, Traits,
)


class Toy(HasTraits):
    traits = Traits(
        name="toy",
        title="Toy",
        place=99,
        moving_parts=9,
        engine=Engine.FSDP2,
        stage=3,
        one_device=False,
        replicates=False,
        cpu_ranks=True,
        offloads=(Offload.NONE, Offload.ALL),
        settings=frozenset({"dtype.reduce"}),
        flags=("--use_toy",),
        packages=("toybox",),
        wrapped_by=frozenset({"toyed"}),
        seen_as=("ToyModule",),
        searched=Searched(over="devices", alone=()),
        compiled=Compiled(regions="blocks", note="toys are counted uncut", approximate=True),
        host=Host(loads="upcast", saves="shards"),
        checkpoint=Checkpoint(form=Form.FSDP2_SHARDS, made_from=(Form.WHOLE,)),
        ladder=Ladder(then=("zero3",), offloads=(Offload.ALL,)),
        faults=frozenset({Fault.PREPARED_APART}),
    )

    def regime(self, precision, stack, peft=None):
        return autocast_regime(precision, stack)

    def refuses(self, context: RankContext) -> str | None:
        return "toys want company" if context.world_size == 1 else None

    def rank(self, context: RankContext) -> RankPlan:
        return single_rank(context)


STRATEGY = Toy()
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The strategy `toy`, in one file, for the length of a test."""
    (tmp_path / "toy.py").write_text(TOY, encoding="utf-8")
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path)])
    yield
    sys.modules.pop(f"{kinds.__name__}.toy", None)


def choice(name: str = "toy", **more: Any) -> StrategyChoice:
    return StrategyChoice(name=name, data_parallel=4, micro_batch_size=1, precision="bf16-mixed", **more)


def planned() -> SavedPlan:
    """A saved plan of the toy."""
    plan = saved("fsdp", "4xH100")
    return replace(plan, plan=replace(plan.plan, strategy=replace(plan.plan.strategy, name="toy")))


def test_it_is_a_value_of_the_option(toy: None) -> None:
    assert read_given({"strategy": "toy"}, ()).strategy == "toy"
    assert read_given({"strategy": "toy"}, ["dtype.reduce=float32"]).strategy == "toy"
    with pytest.raises(UsageError, match=r"--strategy single, ddp, pp and ddp_pp, not toy"):
        read_given({"strategy": "toy"}, ["dtype.params=bfloat16"])
    with pytest.raises(UsageError, match=r"megatron, toy"):
        read_given({"strategy": "toys"}, ())
    with pytest.raises(UsageError, match="toy has no replicas"):
        read_given({"strategy": "toy", "dp-replicate": "2"}, ())


def test_it_is_searched_evaluated_and_launched_by_its_command(toy: None) -> None:
    workload, cluster = Workload(seq_len=64, precision=Precision("bf16-mixed")), parse_cluster("4xH100")
    tried = [family for family in families(workload, cluster, True) if family.strategy.name == "toy"]
    assert {(family.offload, family.checkpointing) for family in tried} == {
        (offload, checkpointing)
        for offload in (Offload.NONE, Offload.ALL)
        for checkpointing in (Checkpointing.NONE, Checkpointing.FULL)
    }
    assert not [f for f in families(workload, parse_cluster("1xH100"), True) if f.strategy.name == "toy"]

    evaluator = Evaluator(provider=cast("Any", _Traced()), workload=workload, cluster=cluster, speed=RooflineModel())
    family = next(f for f in tried if (f.offload, f.checkpointing) == (Offload.ALL, Checkpointing.NONE))
    judgement = evaluator.judge(family, Batch(micro_batch=1, accumulation_steps=1))
    assert judgement.profile.peak_allocated_bytes > 0
    assert judgement.title == "Toy with full offload"
    command = launch_command(judgement, workload, cluster)
    assert "--use_toy --fsdp_reshard_after_forward true" in command
    assert "--fsdp_offload_params true" in command


class _Traced:
    """Stands where `plan` has its provider."""

    def trace(self, variant: object, micro_batch: int) -> Any:
        return tiny_trace([(64, 64), (64, 64)])


def test_reports_call_it_by_its_title(toy: None) -> None:
    assert strategy_words(choice(offload="all")) == "Toy + full offload"


def test_launch_files_follow_its_engine(toy: None) -> None:
    target = Target(saved=planned(), script=Path("train.py"), loop="accelerate", folder=Path("/run"))
    config = accelerate_config(target)
    assert config["distributed_type"] == "FSDP"
    assert cast("dict[str, object]", config["fsdp_config"])["fsdp_version"] == 2
    assert "parallelism_config" not in config
    assert "--config_file" in find_engine("accelerate")(target).command
    with pytest.raises(UsageError, match="this plan is toy"):
        find_engine("deepspeed")(target)
    assert not target.needs_cpu_ranks


def test_ranks_call_it_so_and_a_run_under_it_follows_its_plan(toy: None) -> None:
    seen = strategy_called("ToyModule", strategy_names())
    assert seen == "toy"
    record = RankRecord(
        run_id="r", attempt=1, rank=0, local_rank=0, world_size=4, pid=1, host="h", device="cuda:0", status="done",
        started=0.0, updated=1.0, actual=Actual(strategy=seen),
    )  # fmt: skip
    assert not [line for line in deviations(planned(), [record]) if "strategy" in line]
    other = replace(record, actual=Actual(strategy="ddp"))
    assert any("planned is toy" in line for line in deviations(planned(), [other]))


def test_the_doctor_knows_what_it_breaks_on_and_needs(toy: None) -> None:
    assert Intent(strategy="toy").shards_model is True
    seed = next(seed for seed in SEEDS if seed.rule == "prepared-apart")
    script = Script(path=Path(f"{seed.script}.py"), source=seed.source(), tree=ast.parse(seed.source()))

    def severity(strategy: str) -> set[str]:
        found = examine_script(script, Intent(strategy=strategy, world_size=4))
        return {finding.severity for finding in found if finding.id == "prepared-apart"}

    assert (severity("toy"), severity("ddp")) == ({"error"}, {"warning"})
    assert "toybox" in need_of(planned()).packages


def test_the_explorer_offers_it(toy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its menu is made when the explorer starts: it is read anew here, and put back."""
    from gpu_plan.tui import choices as before

    monkeypatch.setattr(gpu_plan.tui, "choices", before)
    monkeypatch.delitem(sys.modules, before.__name__)

    offered = import_module(before.__name__).CHOICES["strategy"].values
    monkeypatch.setitem(sys.modules, before.__name__, before)
    assert offered == (
        "ddp",
        "tp",
        "pp",
        "ddp_pp",
        "tp_pp",
        "zero1",
        "megatron",
        "zero2",
        "zero3",
        "fsdp_tp",
        "hsdp_tp",
        "fsdp_ep",
        "hsdp_ep",
        "fsdp_pp",
        "fsdp_tp_pp",
        "fsdp",
        "fsdp1",
        "hsdp",
        "toy",
        "single",
    )


def test_it_is_resumed_from_what_its_form_reads_and_is_made_from(toy: None) -> None:
    def resumed(before: str, after: str, layout: str) -> str | None:
        manifest = Manifest(
            step=1, stack="accelerate", layout=layout, strategy=before, world_size=4, created=time.time(),
            parameter_names=("a",),
        )  # fmt: skip
        found = decide_resume(Checkpoint(path=Path("/saved/1"), manifest=manifest), after, 4)
        return found.refused or (found.conversion.layout if found.conversion is not None else None)

    assert resumed("toy", "toy", DCP) is None
    assert resumed("fsdp", "toy", DCP) is None
    assert resumed("ddp", "toy", REPLICATED) == DCP
    assert resumed("toy", "ddp", DCP) == REPLICATED
    assert "not read by fsdp1" in str(resumed("toy", "fsdp1", DCP))
    assert "only its weights are" in str(resumed("zero2", "toy", DEEPSPEED))
    assert "is not a strategy that this version knows" in str(resumed("toys", "toy", DCP))


def test_it_stands_on_the_ladder(toy: None) -> None:
    found = [(rung.name, rung.zero_stage, rung.offload) for rung in rungs(choice(zero_stage=3), Abilities(batch=False))]
    assert found == [
        ("toy", 3, "none"), ("zero3", 3, "none"), ("zero3", 3, "optimizer"), ("zero3", 3, "all"), ("toy", 3, "all"),
    ]  # fmt: skip
    without = rungs(choice(), Abilities(batch=False, deepspeed=False))
    assert {rung.name for rung in without} == {"toy"}


def test_it_is_gone_with_its_file() -> None:
    assert known_traits("toy") is None


def test_traits_refer_to_what_there_is() -> None:
    for traits in all_traits():
        named = (*traits.ladder.then, *traits.ladder.only_offloaded, *filter(None, (traits.unreplicated,)))
        assert all(known_traits(name) is not None for name in named), traits.name
        assert traits.settings <= SETTINGS.keys()
        assert set(traits.ladder.offloads) <= set(Offload)
        assert bool(traits.unreplicated) == traits.replicates
        assert Path(str(sys.modules[type(strategies()[traits.name]).__module__].__file__)).stem == traits.name
    assert len({traits.place for traits in all_traits()}) == len(all_traits())
    words = [word for traits in all_traits() for word in traits.seen_as]
    assert len(set(words)) == len(words)
    assert set(json.loads(strategy_names()[names.STRATEGIES])) == set(words)


def test_help_names_them_all() -> None:
    action = next(action for action in job_parser()._actions if "--strategy" in action.option_strings)
    assert all(name in str(action.help) for name in strategies())


def test_a_strategy_is_described_without_numpy() -> None:
    """Traits are read on the way to launch files and reports; a replay is imported when it is asked."""
    code = (
        "import sys; from gpu_plan.planner.strategy.known import all_traits; all_traits();"
        " sys.exit(bool({'numpy', 'torch', 'gpu_plan.planner.strategy.base'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ALLOWED = {
    "planner/strategy/generation/layout.py": "a generation's ways to spread a model; one of them is called single, too",
    "planner/options/generation.py": "as above",
    "planner/options/training/reading.py": "a stack of a later version",
    "executor/inference/job.py": "as above",
    "executor/inference/session.py": "as above",
    "tui/choices.py": "as above: the menu of a generation",
    "tui/spread.py": "as above",
    "planner/from_config/formats/trainers/axolotl.py": "a key of axolotl's files",
    "planner/from_config/formats/trainers/oumi.py": "a key of Oumi's files",
    "planner/from_config/documents/verl.py": "a word of verl's",
    "planner/from_config/documents/easy_r1.py": "a key of EasyR1's",
    "planner/from_config/shell/launched.py": "presets of TRL, words of accelerate's",
    "planner/from_config/formats/trainers/ms_swift.py": "presets of ms-swift",
    "planner/from_config/formats/trainers/trainer.py": "a key of the Trainer's files",
}
"""Modules in which a string equals a strategy's name and is none of training."""


def test_no_module_but_its_own_names_a_strategy() -> None:
    known = set(strategies()) - {"tp", "pp"}  # `--tp` and `--pp` are options as well, and degrees of other strategies
    found: dict[str, list[str]] = {}
    for place, tree in quoting({*known, *_BEGUN}):
        if place.startswith("planner/strategy/kinds/"):
            continue
        named = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in known]
        stages = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) and _builds_a_name(node)]
        if named or stages:
            found[place] = [ast.unparse(node) for node in (*named, *stages)]
    assert set(found) == set(ALLOWED), found


_BEGUN = ("zero", "fsdp")


def _builds_a_name(node: ast.JoinedStr) -> bool:
    """`f"zero{stage}"`: a name put together where no search for it finds it."""
    first = node.values[0] if node.values else None
    return isinstance(first, ast.Constant) and first.value in _BEGUN and len(node.values) == 2


def test_every_strategy_refuses_and_replays_behind_the_same_door() -> None:
    assert [traits_of(name).name for name in strategies()] == [traits.name for traits in all_traits()]
    assert all(hasattr(strategy, door) for strategy in strategies().values() for door in ("regime", "refuses", "rank"))
