"""Device maps as values: what a map costs, what is refused, how it is shown. No torch."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.search.device_map import (
    Device,
    ModuleSize,
    Problem,
    TensorSize,
    Tie,
    Unit,
    accelerate_map,
    evaluate,
    map_lines,
    plan_placement,
    problem_of,
    solve,
)
from gpu_plan.planner.search.device_map.devices import devices_of
from gpu_plan.planner.search.device_map.items import items_of, runs_of
from gpu_plan.planner.search.device_map.modules import modules_of_tensors
from gpu_plan.planner.search.device_map.placement import Cost, StageProof

GB = 10**9


def decoder(layers: int, layer: int, ends: int, *, tied: bool = False, state: int = 0) -> tuple[Unit, ...]:
    """A decoder in the usual order: embedding, layers, norm, rotary buffers, head."""
    ties = (Tie(group="model.embed_tokens.weight", num_bytes=ends),) if tied else ()
    return (
        Unit(name="model.embed_tokens", weight_bytes=ends, ties=ties),
        *(Unit(name=f"model.layers.{index}", weight_bytes=layer, state_bytes=state) for index in range(layers)),
        Unit(name="model.norm", weight_bytes=8192),
        Unit(name="model.rotary_emb", weight_bytes=0, buffer_bytes=256),
        Unit(name="lm_head", weight_bytes=ends, ties=ties),
    )


def on(budgets: dict[int | str, int | str | None], units: tuple[Unit, ...]) -> Problem:
    return Problem(units=units, devices=devices_of(budgets))


def test_cost_of_a_map_by_hand() -> None:
    """Offloaded weights run on the lowest GPU: its cache and headroom stand there, the CPU only stores."""
    units = (
        Unit(name="a", weight_bytes=100, state_bytes=7, output_bytes=4),
        Unit(name="b", weight_bytes=50, state_bytes=7, workspace_bytes=3, output_bytes=4),
        Unit(name="c", weight_bytes=60, state_bytes=7, output_bytes=4),
        Unit(name="d", weight_bytes=40, state_bytes=7, output_bytes=4),
    )
    devices = devices_of(
        {0: 200, 1: 300, "cpu": 120, "disk": None},
        memory_bytes_per_s={0: 1000.0, 1: 2000.0},
        link_bytes_per_s={0: 10.0, 1: 20.0},
        disk_bytes_per_s=5.0,
    )
    problem = Problem(units=units, devices=devices)
    found = evaluate(problem, {"d": 1, "a": 0, "b": "cpu", "c": "disk"})
    assert found.main_device == 0
    assert found.cost.offloaded_bytes == 110
    assert found.cost.disk_bytes == 60
    assert found.cost.boundaries == 1
    assert found.moved_bytes == 110 + 60 + 4
    use = {item.name: item for item in found.devices}
    assert (use[0].weight_bytes, use[0].kept_bytes, use[0].headroom_bytes) == (100, 21, 60)
    assert (use[1].weight_bytes, use[1].kept_bytes, use[1].headroom_bytes) == (40, 7, 0)
    assert (use["cpu"].weight_bytes, use["cpu"].kept_bytes, use["cpu"].headroom_bytes) == (50, 0, 60)
    assert found.cost.fullest == 181 / 200
    reading = (107 + 57 + 67) / 1000 + 47 / 2000
    assert found.seconds_per_token == pytest.approx(reading + 110 / 10 + 60 / 5 + 4 / 10 + 4 / 20)
    assert next(iter(found.device_map)) == "a"
    assert found.valid
    smaller = replace(problem, devices=(replace(devices[0], free_bytes=180), *devices[1:]))
    assert evaluate(smaller, found.device_map).violations == ("device 0 needs 181 bytes and has 180",)


def test_buffers_stand_where_their_unit_runs() -> None:
    """Weights wait in host memory; what a unit computes with is on the GPU that runs it."""
    units = (Unit(name="a", weight_bytes=10, buffer_bytes=3), Unit(name="b", weight_bytes=20, buffer_bytes=5))
    found = evaluate(on({0: 100, "cpu": 100}, units), {"a": 0, "b": "cpu"})
    assert [(use.name, use.weight_bytes, use.buffer_bytes) for use in found.devices] == [(0, 10, 8), ("cpu", 20, 0)]


def equal_units(count: int) -> tuple[Unit, ...]:
    return tuple(Unit(name=f"u{index}", weight_bytes=100) for index in range(count))


def test_a_gpu_too_small_for_any_unit_is_not_the_one_that_runs_what_is_offloaded() -> None:
    """The other holds one unit and has room for one more at its turn."""
    found = solve(on({0: 50, 1: 250, "cpu": None}, equal_units(3)))
    assert (found.main_device, found.cost.offloaded_bytes, found.valid) == (1, 200, True)


def test_what_is_offloaded_runs_on_a_gpu_that_holds_something() -> None:
    """The first has room for a unit at its turn or for one that stays, not for both: nothing passes through it."""
    found = solve(on({0: 100, 1: 200, "cpu": None}, equal_units(4)))
    assert (found.main_device, found.cost.offloaded_bytes, found.valid) == (1, 300, True)


def test_a_byte_from_disk_weighs_more_than_any_crossing_and_less_than_one_that_is_offloaded() -> None:
    def cost(offloaded: int, disk: int, boundaries: int, fullest: float = 0.5) -> Cost:
        return Cost(offloaded_bytes=offloaded, disk_bytes=disk, boundaries=boundaries, fullest=fullest)

    best_first = [cost(4, 3, 9), cost(5, 0, 9), cost(5, 1, 1, 0.9), cost(5, 1, 2, 0.1), cost(5, 2, 0)]
    assert sorted(reversed(best_first), key=lambda one: one.key) == best_first


def test_a_goal_is_proved_where_nothing_below_its_value_is_left() -> None:
    def proof(value: float, bound: float) -> StageProof:
        return StageProof(goal="boundaries", value=value, bound=bound, method="time limit")

    assert [proof(3, bound).optimal for bound in (2, 3, 4)] == [False, True, True]
    found = solve(on({0: 100, "cpu": None}, (Unit(name="a", weight_bytes=60), Unit(name="b", weight_bytes=60))))
    assert found.optimal
    cut_short = replace(found, proof=(*found.proof[:-1], proof(3, 2)))
    assert not cut_short.optimal
    assert cut_short.to_json()["optimal"] is False


def test_tied_weights_are_stored_once_and_stay_together() -> None:
    units = decoder(2, 30, 100, tied=True)
    problem = on({0: 1000, 1: 1000}, units)
    together = evaluate(problem, {"": 0})
    assert together.devices[0].weight_bytes == 100 + 60 + 8192
    apart = evaluate(problem, {"model": 0, "lm_head": 1})
    assert apart.devices[0].weight_bytes + apart.devices[1].weight_bytes == 260 + 8192
    assert "tied tensor model.embed_tokens.weight is on several devices" in apart.violations


def test_tied_ends_share_a_gpu() -> None:
    found = solve(on({0: 9 * GB, 1: 9 * GB, "cpu": 4 * GB}, decoder(32, 436 * 10**6, GB, tied=True)))
    assert found.device_map["model.embed_tokens"] == found.device_map["lm_head"]
    assert found.cost.offloaded_bytes == 0
    assert found.cost.boundaries == 2  # there and back: with both ends on one of two GPUs one crossing cannot do
    assert found.optimal


def test_cache_of_offloaded_layers_takes_room_on_the_main_gpu() -> None:
    without = solve(on({0: 10 * GB, "cpu": 40 * GB}, decoder(32, 400 * 10**6, GB)))
    with_cache = solve(on({0: 10 * GB, "cpu": 40 * GB}, decoder(32, 400 * 10**6, GB, state=100 * 10**6)))
    assert with_cache.cost.offloaded_bytes - without.cost.offloaded_bytes == pytest.approx(32 * 10**8, abs=4 * 10**8)
    assert with_cache.valid
    assert with_cache.devices[0].kept_bytes == 32 * 10**8 + 256


def test_deepseek_v3_on_eight_gpus_cpu_and_disk_is_proved() -> None:
    """671B in bf16: 1.34 TB over eight unequal GPUs, host memory and disk."""
    units = (
        Unit(name="model.embed_tokens", weight_bytes=1853358080),
        *(Unit(name=f"model.layers.{index}", weight_bytes=1167161344) for index in range(3)),
        *(Unit(name=f"model.layers.{index}", weight_bytes=23014572032) for index in range(3, 61)),
        Unit(name="model.norm", weight_bytes=14336),
        Unit(name="lm_head", weight_bytes=1853358080),
    )
    budgets: dict[int | str, int | str | None] = {0: 79 * GB, 1: 79 * GB, 2: 70 * GB, 3: 79 * GB, 4: 60 * GB}
    budgets |= {5: 79 * GB, 6: 47 * GB, 7: 79 * GB, "cpu": 400 * GB, "disk": None}
    found = solve(on(budgets, units), limit_seconds=120)
    assert found.valid
    assert found.optimal
    # Not more than 3+3+3+3+2+3+2+3 of the large layers have room, and the main GPU keeps room for one of them.
    assert sum(1 for name, place in found.device_map.items() if isinstance(place, int) and "layers" in name) <= 25
    text = map_lines(found)
    assert any(line.startswith("model.layers ") and line.endswith("-> disk") for line in text)


def test_same_problem_gives_the_same_map() -> None:
    problem = on({0: 6 * GB, 1: 4 * GB, "cpu": 20 * GB}, decoder(32, 436 * 10**6, GB))
    assert solve(problem).device_map == solve(problem).device_map


def test_text_and_json_of_a_placement() -> None:
    problem = on({0: 6 * GB, 1: 4 * GB, "cpu": 20 * GB}, decoder(32, 436 * 10**6, GB))
    where: dict[str, int | str] = {f"model.layers.{i}": 0 if i < 10 else "cpu" if i < 26 else 1 for i in range(32)}
    shown = map_lines(evaluate(problem, {"model.norm": 1, "lm_head": 1, "model.embed_tokens": 0, **where}))
    assert shown == [
        "model.embed_tokens -> cuda:0",
        "model.layers 0-9   -> cuda:0",
        "model.layers 10-25 -> cpu",
        "model.layers 26-31 -> cuda:1",
        "model.norm         -> cuda:1",
        "model.rotary_emb   -> cuda:0",
        "lm_head            -> cuda:1",
        "cuda:0: 5.4 GiB of 5.6 GiB (weights 5.0 GiB, cache and buffers 256 B, headroom 415.8 MiB)",
        "cuda:1: 3.4 GiB of 3.7 GiB (weights 3.4 GiB, cache and buffers 0 B, headroom 0 B)",
        "cpu: 6.5 GiB of 18.6 GiB (weights 6.5 GiB, cache and buffers 0 B, headroom 0 B)",
        "per token: 6.5 GiB streamed, 1 boundary (evaluated)",
    ]
    found = solve(problem, limit_seconds=120)
    assert map_lines(found)[-1] == "per token: 6.1 GiB streamed, 2 boundaries (proved optimal)"
    document = json.loads(json.dumps(found.to_json()))
    assert document["optimal"] is True
    assert document["offloaded_bytes"] == 15 * 436 * 10**6
    goals = ["offloaded bytes", "disk bytes", "boundaries", "fullest device"]
    assert [stage["goal"] for stage in document["proof"]] == goals
    assert next(iter(accelerate_map(found).values())) == 0


def test_weightless_modules_follow_and_equal_layers_are_one_run() -> None:
    items = items_of(decoder(32, 10, 5))
    assert [item.names for item in items][-2] == ("model.norm", "model.rotary_emb")
    assert [run.count for run in runs_of(items)] == [1, 32, 1, 1]


def test_no_gpu_has_room_for_a_block() -> None:
    """As accelerate does: the CPU runs everything, and all weights count as offloaded."""
    found = solve(on({0: 5, "cpu": 1000, "disk": None}, decoder(2, 30, 100)[:3]))
    assert set(found.device_map.values()) == {"cpu"}
    assert found.main_device == "cpu"
    assert found.cost.offloaded_bytes == 160


def test_the_solver_prints_nothing() -> None:
    """Data only on stdout: HiGHS writes a line of its own there when a program has continuous variables."""
    code = (
        "from gpu_plan.planner.search.device_map import Problem, Unit, solve\n"
        "from gpu_plan.planner.search.device_map.devices import devices_of\n"
        "sizes = [419430400, *[134217728] * 3, *[1169162240] * 24, 4096, 419430400]\n"
        "units = tuple(Unit(name=f'u{i}', weight_bytes=size, workspace_bytes=1000) for i, size in enumerate(sizes))\n"
        "total = sum(sizes)\n"
        "for share in (0.6, 0.45, 0.3):\n"
        "    budget = {0: int(share * total), 1: int(share * total), 'cpu': total, 'disk': None}\n"
        "    solve(Problem(units=units, devices=devices_of(budget)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1500, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def module(name: str, class_name: str, **tensors: int) -> ModuleSize:
    prefix = f"{name}." if name else ""
    held = tuple(TensorSize(name=prefix + key, num_bytes=size) for key, size in tensors.items())
    return ModuleSize(name=name, class_name=class_name, tensors=held)


TREE = (
    module("", "Model"),
    module("embed", "Embedding", weight=100),
    module("layers", "ModuleList"),
    module("layers.0", "Block"),
    module("layers.0.a", "Linear", weight=10, bias=1),
    module("layers.0.b", "Linear", weight=20),
    module("tower", "Tower", token=5),
    module("tower.fc", "Linear", weight=30),
    module("head", "Linear", weight=100),
)


def test_units_are_blocks_leaves_and_tensors_of_split_modules() -> None:
    problem = problem_of(TREE, devices_of({"cpu": None}), no_split=["Block"])
    assert {unit.name: unit.weight_bytes for unit in problem.units} == {
        "embed": 100,
        "layers.0": 31,
        "tower.token": 5,
        "tower.fc": 30,
        "head": 100,
    }
    streamed = problem_of(TREE, devices_of({"cpu": None}), no_split=["Block"], streaming="module")
    assert streamed.units[1].stream_bytes == 20


def test_amounts_go_to_the_unit_that_holds_the_module() -> None:
    problem = problem_of(
        TREE,
        devices_of({"cpu": None}),
        no_split=["Block"],
        state_bytes={"layers.0.a": 3, "layers.0.b": 4},
        workspace_bytes={"layers.0.a": 3, "layers.0.b": 4},
        order=["head", "layers.0.b", "embed"],
    )
    assert [unit.name for unit in problem.units] == ["head", "layers.0", "embed", "tower.token", "tower.fc"]
    assert (problem.units[1].state_bytes, problem.units[1].workspace_bytes) == (7, 4)
    with pytest.raises(InputError, match="'elsewhere' is not a module that is placed"):
        problem_of(TREE, devices_of({"cpu": None}), state_bytes={"elsewhere": 1})


def test_modules_from_tensor_names() -> None:
    tensors = [TensorSize(name="model.embed.weight", num_bytes=8, tied_to="model.embed.weight")]
    tensors += [TensorSize(name=f"model.layers.{index}.mlp.weight", num_bytes=4) for index in range(2)]
    tensors += [TensorSize(name="head.weight", num_bytes=8, tied_to="model.embed.weight")]
    classes = {f"model.layers.{index}": "Block" for index in range(2)}
    problem = problem_of(modules_of_tensors(tensors, classes), devices_of({0: 16, 1: 16}), no_split=["Block"])
    assert [unit.name for unit in problem.units] == ["model.embed", "model.layers.0", "model.layers.1", "head"]
    assert problem.weight_bytes == 16
    assert set(solve(problem).device_map.values()) == {0}


@pytest.mark.parametrize(
    ("device_map", "message"),
    [
        ({"": 0, "modle.layers.0": 0}, "'modle.layers.0' names no module"),
        ({"model.embed_tokens": 0}, "no device is given for model.layers.0"),
        ({"": 3}, "'' is placed on 3, which is not one of the given devices"),
        ({"": 0, "model.layers.0.mlp": 1}, "model.layers.0 must not be split over devices"),
    ],
)
def test_maps_that_make_no_sense(device_map: dict[str, int | str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(on({0: 1000, 1: 1000}, decoder(2, 30, 100)), device_map)


def test_problems_that_make_no_sense() -> None:
    one = Unit(name="a", weight_bytes=1)
    cases: list[tuple[tuple[Unit, ...], dict[int | str, int | str | None], str]] = [
        ((), {0: 1}, "no modules"),
        ((one,), {}, "no device"),
        ((one, one), {0: 1}, "'a' is named twice"),
        ((one, Unit(name="a.b", weight_bytes=1)), {0: 1}, "'a.b' lies inside 'a'"),
        ((Unit(name="a", weight_bytes=-1),), {0: 1}, "weight_bytes of a is -1"),
        ((one,), {0: -5}, "free bytes of device 0 is -5"),
        ((one,), {"gpu": 5}, "device 'gpu' is not a GPU's index"),
        ((one,), {0: "lots"}, "size 'lots' is not understood"),
        ((Unit(name="a", weight_bytes=1, ties=(Tie(group="t", num_bytes=2),)),), {0: 1}, "less than its tied tensors"),
    ]
    for units, budgets, message in cases:
        with pytest.raises(InputError, match=message) as caught:
            on(budgets, units)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        ({0: 50, 1: 50}, "model.norm needs 8.2 KiB on one device and the largest has 50 B free"),
        ({0: 10000, "cpu": 50}, "the model needs .* and the devices have"),
        ({"disk": None}, "a disk computes nothing"),
    ],
)
def test_budgets_that_hold_no_map(budgets: dict[int | str, int | str | None], message: str) -> None:
    units = decoder(4, 2000, 100)
    with pytest.raises(InputError, match=message) as caught:
        solve(on(budgets, units))
    assert "\n" not in str(caught.value)


def test_only_the_search_imports_scipy() -> None:
    code = (
        "import sys\n"
        "import gpu_plan.planner.search.device_map\n"
        "bad = {'torch', 'transformers', 'accelerate', 'scipy', 'numpy'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=1500, check=True)


def test_rates_and_devices() -> None:
    devices = devices_of({"cpu": "64GiB", 1: "8GB", 0: 5, "disk": None}, link_bytes_per_s=3.0, disk_bytes_per_s=2.0)
    assert [device.name for device in devices] == [0, 1, "cpu", "disk"]
    assert [device.free_bytes for device in devices] == [5, 8 * GB, 64 * 1024**3, None]
    assert [device.link_bytes_per_s for device in devices] == [3.0, 3.0, None, 2.0]
    with pytest.raises(InputError, match="a rate of device 0"):
        Problem(
            units=(Unit(name="a", weight_bytes=1),),
            devices=(Device(name=0, kind="gpu", free_bytes=1, link_bytes_per_s=0.0),),
        )


def test_in_a_plan() -> None:
    found = evaluate(
        on({0: 6 * GB, "cpu": 20 * GB, "disk": None}, decoder(4, 436 * 10**6, GB, state=5)),
        {"model": 0, "model.layers.3": "cpu", "lm_head": "cpu"},
    )
    kept = plan_placement(found)
    assert kept.device_map["model.layers.3"] == "cpu"
    assert (kept.main_device, kept.moved_bytes_per_step) == ("cuda:0", 1436 * 10**6)
    assert [entry.device for entry in kept.devices] == ["cuda:0", "cpu"]
    assert kept.devices[0].weight_bytes == GB + 3 * 436 * 10**6 + 8192 + 256
    assert kept.devices[0].kv_cache_bytes == 20
    assert kept.devices[1].weight_bytes == 1436 * 10**6
