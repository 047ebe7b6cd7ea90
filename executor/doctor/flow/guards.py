"""Which ranks a test lets through, and whether it waits for accumulated gradients."""

import ast
from collections.abc import Callable
from typing import Literal

from gpu_plan.executor.doctor.flow.events import MAIN_ONLY, MAIN_SOME, OTHERS_ONLY, SYNC
from gpu_plan.executor.doctor.flow.names import last
from gpu_plan.executor.doctor.flow.values import Value

Side = Literal["main", "others", "some", ""]
MAIN_FLAGS = frozenset(
    {
        "is_main_process", "is_local_main_process", "is_world_process_zero", "is_local_process_zero", "is_rank_zero",
        "is_rank_0", "is_rank0", "is_global_zero", "is_main", "is_master", "is_master_process", "is_main_rank",
        "main_process", "master_process", "is_first_rank", "is_world_zero", "rank_zero", "is_rank_zero_global",
        "process_is_main", "should_save", "is_primary",
    }
)  # fmt: skip
RANKS = frozenset(
    {
        "rank", "local_rank", "global_rank", "process_index", "local_process_index", "get_rank", "get_local_rank",
        "node_rank", "proc_index", "process_id", "ddp_rank", "ddp_local_rank", "world_rank", "gpu_id", "proc_id",
        "local_process_rank", "RANK", "LOCAL_RANK", "rank_id", "get_ordinal", "data_parallel_rank", "mpi_rank",
    }
)  # fmt: skip
_INVERSE: dict[Side, Side] = {"main": "others", "others": "main", "some": "some", "": ""}


def side_of(test: ast.expr, value_of: Callable[[ast.expr], Value]) -> Side:
    """Which ranks pass: the main one only, the others only, the main one and some others, or no telling."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _INVERSE[side_of(test.operand, value_of)]
    if isinstance(test, ast.BoolOp):
        sides = [side_of(part, value_of) for part in test.values]
        return _all_of(sides) if isinstance(test.op, ast.And) else _any_of(sides)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _comparison(test, value_of)
    return "main" if value_of(test).kind == "main_flag" else ""


def _all_of(sides: list[Side]) -> Side:
    wanted: tuple[Side, ...] = ("main", "others", "some")
    return next((side for side in wanted if side in sides), "")


def _any_of(sides: list[Side]) -> Side:
    if all(side == sides[0] for side in sides):
        return sides[0]
    return "some" if "main" in sides or "some" in sides else ""


def _comparison(test: ast.Compare, value_of: Callable[[ast.expr], Value]) -> Side:
    left, right, op = test.left, test.comparators[0], test.ops[0]
    if _number(left) is not None and value_of(right).kind == "rank":
        left, right = right, left
    if value_of(left).kind != "rank":
        return ""
    number = _number(right)
    if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.List | ast.Tuple | ast.Set):
        numbers = [_number(item) for item in right.elts]
        inside = all(item is not None and item <= 0 for item in numbers)
        return ("main" if isinstance(op, ast.In) else "others") if inside else ""
    if number is None or number > 0:
        return "some" if number is None else ""
    if isinstance(op, ast.Eq | ast.LtE | ast.Is):
        return "main"
    if isinstance(op, ast.NotEq | ast.Gt) and number == 0:
        return "others"
    # `!= -1` and `== -1` ask whether the job is distributed at all.
    return "some" if number < 0 else ""


def _number(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def guards_of(test: ast.expr, value_of: Callable[[ast.expr], Value]) -> tuple[frozenset[str], frozenset[str]]:
    """Guards that hold in the body of an `if`, and in its `else`."""
    side = side_of(test, value_of)
    sync = frozenset({SYNC}) if waits_for_gradients(test) else frozenset[str]()
    by_side = {
        "main": ({MAIN_ONLY}, {OTHERS_ONLY}),
        "others": ({OTHERS_ONLY}, {MAIN_ONLY}),
        "some": ({MAIN_SOME}, {MAIN_SOME}),
        "": (set[str](), set[str]()),
    }
    body, other = by_side[side]
    if side == "" and asks_for_group(test):
        # Its `else` is the way of a single process.
        negated = isinstance(test, ast.UnaryOp)
        body, other = ({MAIN_SOME}, set()) if negated else (set(), {MAIN_SOME})
    return frozenset(body) | sync, frozenset(other)


def waits_for_gradients(test: ast.expr) -> bool:
    """Whether a test asks if this micro batch ends an accumulation."""
    text = ast.unparse(test).lower()
    modulo = any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in ast.walk(test))
    words = ("sync_gradients", "is_gradient_accumulation_boundary", "should_step", "do_sync", "update_step")
    return (modulo and "accum" in text) or any(word in text for word in words)


def asks_for_group(test: ast.expr) -> bool:
    """Whether a test asks if there is more than one process."""
    words = (
        "is_initialized",
        "world_size > 1",
        "num_processes > 1",
        "is_distributed",
        ".distributed",
        "use_distributed",
    )
    source = ast.unparse(test)
    return any(word in source for word in words)


def by_name(name: str) -> Value:
    """What a bare name tells of ranks: the flag of the main process, a rank, or nothing."""
    tail = last(name)
    if tail in MAIN_FLAGS:
        return Value(kind="main_flag", marks=frozenset({"local"}))
    if tail in RANKS:
        return Value(kind="rank", marks=frozenset({"local", "per_rank"}))
    return Value()
