"""What a rank finds around its model is what one strategy says that it is seen as."""

from itertools import product

from gpu_plan.executor.runner.observe.wrapping import stage
from gpu_plan.planner.strategy.known import all_traits


def test_every_kind_of_stage_is_one_strategys():
    known = {seen: traits.name for traits in all_traits() for seen in traits.seen_as}
    found = [known.get(stage(data, together=together)) for data, together in product(("", "sharded"), (False, True))]
    assert found == ["pp", "tp_pp", "fsdp_pp", "fsdp_tp_pp"]
    assert known[stage("averaged")] == "ddp_pp"
