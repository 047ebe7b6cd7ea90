"""Reads expressions: what they give, and which attributes they ask for."""

import ast
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from gpu_plan.executor.doctor.flow import make
from gpu_plan.executor.doctor.flow import values as v
from gpu_plan.executor.doctor.flow.events import Access, Context, Event, Flow
from gpu_plan.executor.doctor.flow.guards import by_name
from gpu_plan.executor.doctor.flow.names import dotted, root
from gpu_plan.executor.doctor.flow.scope import Scope
from gpu_plan.executor.doctor.flow.values import NOTHING, Value, join, spread

if TYPE_CHECKING:
    from collections.abc import Callable

WATCHED = frozenset({"model", "optimizer", "loader"})
_RANK_VARIABLES = frozenset({"RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"})
_PROCESSES = ("num_processes", "world_size", "n_gpu", "num_gpus")


class ExpressionReader(ABC):
    """Evaluates expressions to values; subclasses know calls and functions."""

    def __init__(self, imports: dict[str, str]) -> None:
        self.imports = imports
        self.flow = Flow(imports=frozenset(imports.values()))
        self.fields: dict[int, dict[str, Value]] = {}
        """Attributes of instances, by identity of their class."""
        self.silent = 0
        """Above zero while a first pass over a loop only learns what its names may hold."""

    @abstractmethod
    def method_of(self, instance: Value, name: str) -> Value:
        """The method of a class of the script, bound; nothing where it has none."""

    def record(self, event: Event) -> None:
        if not self.silent:
            self.flow.events.append(event)

    def eval(self, node: ast.expr | None, scope: Scope, context: Context) -> Value:
        """The value of `node`."""
        if node is None or isinstance(node, ast.Constant | ast.Lambda):
            return NOTHING
        reader: Callable[[ast.expr, Scope, Context], Value] | None = getattr(self, f"_{type(node).__name__}", None)
        if reader is not None:
            return reader(node, scope, context)
        return spread(
            [self.eval(child, scope, context) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        )

    def _Name(self, node: ast.Name, scope: Scope, context: Context) -> Value:
        return scope.get(node.id) if scope.bound(node.id) else by_name(node.id)

    def _Starred(self, node: ast.Starred, scope: Scope, context: Context) -> Value:
        return self.eval(node.value, scope, context)

    def _NamedExpr(self, node: ast.NamedExpr, scope: Scope, context: Context) -> Value:
        value = self.eval(node.value, scope, context)
        scope.set(node.target.id, value)
        return value

    def _Tuple(self, node: ast.Tuple, scope: Scope, context: Context) -> Value:
        return Value(items=tuple(self.eval(item, scope, context) for item in node.elts))

    def _List(self, node: ast.List, scope: Scope, context: Context) -> Value:
        return Value(items=tuple(self.eval(item, scope, context) for item in node.elts))

    def _Dict(self, node: ast.Dict, scope: Scope, context: Context) -> Value:
        items = [self.eval(item, scope, context) for item in node.values]
        for key in node.keys:
            self.eval(key, scope, context)
        kept = tuple(item for item in items if item != NOTHING)
        return Value(items=kept) if kept else NOTHING

    def _IfExp(self, node: ast.IfExp, scope: Scope, context: Context) -> Value:
        self.eval(node.test, scope, context)
        return join([self.eval(node.body, scope, context), self.eval(node.orelse, scope, context)])

    def _Compare(self, node: ast.Compare, scope: Scope, context: Context) -> Value:
        sides = [self.eval(side, scope, context) for side in (node.left, *node.comparators)]
        # Questions of type and presence have the same answer on every rank.
        if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops):
            return NOTHING
        return spread(sides)

    def _BinOp(self, node: ast.BinOp, scope: Scope, context: Context) -> Value:
        left, right = self.eval(node.left, scope, context), self.eval(node.right, scope, context)
        return self.operation(node.op, left, right, node.right, node.left)

    def operation(self, op: ast.operator, left: Value, right: Value, divisor: ast.expr, dividend: ast.expr) -> Value:
        """The result of a binary operation; notes divisions by accumulation steps and by the number of ranks."""
        result = spread([left, right])
        text = ast.unparse(divisor).lower()
        if isinstance(op, ast.Div) and "accum" in text and left.marks & {v.LOSS, v.LOCAL}:
            return result.with_marks(v.DIVIDED)
        if isinstance(op, ast.Mult):
            factors = f"{text} {ast.unparse(dividend).lower()}"
            if "accum" in factors:
                result = result.without(v.DIVIDED)
            if any(word in factors for word in _PROCESSES):
                result = result.without(v.SHARDED_LENGTH)
        if left.items is not None and right.items is not None and isinstance(op, ast.Add):
            return Value(items=left.items + right.items)
        if "parameters" in {left.kind, right.kind}:
            return Value(kind="parameters", origins=left.origins | right.origins)
        return result

    def _Attribute(self, node: ast.Attribute, scope: Scope, context: Context) -> Value:
        return self._attribute(node, scope, context, called=False)

    def _attribute(self, node: ast.Attribute, scope: Scope, context: Context, *, called: bool) -> Value:
        if self.is_module(node.value, scope):
            return by_name(node.attr)
        base = self.eval(node.value, scope, context)
        if base.kind in WATCHED:
            self.record(Access(node=node, receiver=base, context=context, called=called))
        if base.kind in {"instance", "class"} and base.target is not None:
            found = self.fields.get(id(base.target), {}).get(node.attr)
            if found is not None:
                return found
            method = self.method_of(base, node.attr)
            if method != NOTHING:
                return method
            return by_name(node.attr)
        return make.attribute(base, node.attr)

    def is_module(self, node: ast.expr, scope: Scope) -> bool:
        """Whether `node` names something imported: a module, or a class or function of one."""
        name = root(node)
        return bool(dotted(node)) and name in self.imports and not scope.bound(name)

    def _Subscript(self, node: ast.Subscript, scope: Scope, context: Context) -> Value:
        chosen = self.eval(node.slice, scope, context)
        if dotted(node.value).endswith("environ") and isinstance(node.slice, ast.Constant):
            return self._environment(str(node.slice.value))
        base = self.eval(node.value, scope, context)
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if base.items is not None and isinstance(index, int) and -len(base.items) <= index < len(base.items):
            return base.items[index]
        if base.kind == "batch":
            return base
        if isinstance(index, str) and base.has(v.LOCAL):
            return make.attribute(base, index)
        if base.items is not None and isinstance(node.slice, ast.Slice):
            return join(base.items)
        # `paths[rank::world_size]` is a rank's own share.
        return spread([base, Value(marks=chosen.marks & {v.PER_RANK})])

    def _environment(self, name: str) -> Value:
        return by_name("rank") if name in _RANK_VARIABLES else NOTHING

    def _comprehension(self, node: ast.expr, scope: Scope, context: Context, results: list[ast.expr]) -> Value:
        inner = Scope(scope)
        for generator in getattr(node, "generators", []):
            self.bind(generator.target, make.element(self.eval(generator.iter, inner, context)), inner, context)
            for test in generator.ifs:
                self.eval(test, inner, context)
        found = [self.eval(result, inner, context) for result in results]
        value = found[-1]
        if value.kind in {"batch", "parameters"}:
            return value
        return Value(items=(value,)) if value.kind else spread(found)

    def _ListComp(self, node: ast.ListComp, scope: Scope, context: Context) -> Value:
        return self._comprehension(node, scope, context, [node.elt])

    def _SetComp(self, node: ast.SetComp, scope: Scope, context: Context) -> Value:
        return self._comprehension(node, scope, context, [node.elt])

    def _GeneratorExp(self, node: ast.GeneratorExp, scope: Scope, context: Context) -> Value:
        return self._comprehension(node, scope, context, [node.elt])

    def _DictComp(self, node: ast.DictComp, scope: Scope, context: Context) -> Value:
        return self._comprehension(node, scope, context, [node.key, node.value])

    def bind(self, target: ast.expr, value: Value, scope: Scope, context: Context) -> None:
        """Assigns `value` to `target`, unpacking tuples."""
        if isinstance(target, ast.Name):
            scope.set(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            same = value.items is not None and len(value.items) == len(target.elts)
            for position, part in enumerate(target.elts):
                piece = value.items[position] if same and value.items is not None else make.element(value)
                self.bind(part.value if isinstance(part, ast.Starred) else part, piece, scope, context)
        elif isinstance(target, ast.Attribute):
            base = self.eval(target.value, scope, context)
            if base.kind in {"instance", "class"} and base.target is not None:
                known = self.fields.setdefault(id(base.target), {})
                known[target.attr] = join([known.get(target.attr, NOTHING), value])
        elif isinstance(target, ast.Subscript):
            base_name = root(target)
            if base_name and value.marks and scope.bound(base_name) and not scope.get(base_name).kind:
                scope.set(base_name, join([scope.get(base_name), spread([value])]))
