"""Enters the script's own functions and classes where they are called, with what they are given."""

import ast
from abc import abstractmethod
from dataclasses import replace

from gpu_plan.executor.doctor.flow.calls import CallReader
from gpu_plan.executor.doctor.flow.events import MAIN_ONLY, Context
from gpu_plan.executor.doctor.flow.guards import by_name
from gpu_plan.executor.doctor.flow.names import dotted, last
from gpu_plan.executor.doctor.flow.scope import Scope
from gpu_plan.executor.doctor.flow.values import NOTHING, Value, join

_MAX_DEPTH = 10
_MAX_ENTERED = 2000
_MODULE_BASE = ("Module", "LightningModule", "PreTrainedModel", "ModelMixin")
_PASSIVE_BASE = ("Dataset", "Module", "Model", "Config", "Callback", "Arguments", "Sampler", "Pipeline", "Mixin")
MAIN_DECORATORS = frozenset({"on_main_process", "rank_zero_only", "on_local_main_process", "main_process_only"})
_PARAMETER_KINDS = {"accelerator": "accelerator", "Accelerator": "accelerator"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class FunctionReader(CallReader):
    """Knows what the script defines, and reads a body where it is called."""

    def __init__(self, imports: dict[str, str]) -> None:
        super().__init__(imports)
        self.around: dict[int, Scope] = {}
        """Scope in which a function or class was defined."""
        self.functions: list[tuple[Function, ast.ClassDef | None]] = []
        self.entered: set[int] = set()
        self.count = 0
        self.stack: list[int] = []
        self.results: list[list[Value]] = []
        self.done: dict[object, Value] = {}

    @abstractmethod
    def block(self, body: list[ast.stmt], scope: Scope, context: Context) -> None:
        """Reads statements one after another."""

    def as_value(self, function: Function, owner: ast.ClassDef | None) -> Value:
        items = None if owner is None else (Value(kind="instance", target=owner),)
        return Value(kind="function", target=function, items=items)

    def passive(self, owner: ast.ClassDef) -> bool:
        """Whether others call the class's methods for what they return: datasets, modules, settings."""
        return any(last(dotted(base)).endswith(_PASSIVE_BASE) for base in owner.bases) or bool(
            {"dataclass", "dataclasses.dataclass"} & {dotted(item) for item in owner.decorator_list}
        )

    def define(self, node: Function, scope: Scope, owner: ast.ClassDef | None) -> None:
        """Notes a function, and the names that it sees."""
        if id(node) not in self.around:
            self.functions.append((node, owner))
        self.around[id(node)] = scope

    def method_of(self, instance: Value, name: str) -> Value:
        owner = instance.target
        for _ in range(8):
            if not isinstance(owner, ast.ClassDef):
                return NOTHING
            for statement in owner.body:
                if isinstance(statement, Function) and statement.name == name:
                    if any(
                        dotted(item) in {"property", "functools.cached_property"} for item in statement.decorator_list
                    ):
                        return self.enter(self._bound(statement, instance), (), {}, Context()) or NOTHING
                    return self._bound(statement, instance)
            owner = self._base_of(owner)
        return NOTHING

    def _bound(self, function: Function, instance: Value) -> Value:
        static = any(dotted(item) == "staticmethod" for item in function.decorator_list)
        return Value(kind="function", target=function, items=None if static else (instance,))

    def _base_of(self, owner: ast.ClassDef) -> ast.AST | None:
        scope = self.around.get(id(owner))
        for base in owner.bases:
            found = scope.get(dotted(base)) if scope is not None else NOTHING
            if found.kind == "class":
                return found.target
        return None

    def _instance(
        self, owner: ast.ClassDef, arguments: tuple[Value, ...], keywords: dict[str, Value], context: Context
    ) -> Value:
        bases: list[str] = []
        present: ast.AST | None = owner
        for _ in range(8):
            if not isinstance(present, ast.ClassDef):
                break
            bases += [last(dotted(base)) for base in present.bases]
            present = self._base_of(present)
        if any(base.endswith(_MODULE_BASE) for base in bases):
            given = (*arguments, *keywords.values())
            held = frozenset().union(*(value.origins for value in given if value.kind == "model"))
            return Value(kind="model", origins=held | {id(owner)}, target=owner)
        if any(base.endswith("Trainer") for base in bases):
            return Value(kind="trainer", origins=frozenset({id(owner)}), target=owner)
        instance = Value(kind="instance", target=owner)
        built = self.method_of(instance, "__init__")
        if built != NOTHING:
            self.enter(built, arguments, keywords, context)
        return instance

    def enter(
        self, callee: Value, arguments: tuple[Value, ...], keywords: dict[str, Value], context: Context
    ) -> Value | None:
        target = callee.target
        if callee.kind == "class" and isinstance(target, ast.ClassDef):
            return self._instance(target, arguments, keywords, context)
        if not isinstance(target, Function) or callee.kind != "function":
            return None
        bound = callee.items or ()
        key = (id(target), bound, arguments, tuple(sorted(keywords.items(), key=lambda item: item[0])), context.guards,
               context.withs, context.loops, bool(self.silent), context.local)  # fmt: skip
        if key in self.done:
            return self.done[key]
        self.entered.add(id(target))
        if id(target) in self.stack or context.depth >= _MAX_DEPTH or self.count >= _MAX_ENTERED:
            self.flow.truncated |= self.count >= _MAX_ENTERED
            return NOTHING
        self.count += 1
        self.stack.append(id(target))
        result = self._body(target, (*bound, *arguments), keywords, context)
        self.stack.pop()
        self.done[key] = result
        return result

    def _body(
        self, node: Function, arguments: tuple[Value, ...], keywords: dict[str, Value], context: Context
    ) -> Value:
        scope = Scope(self.around.get(id(node)))
        for parameter, value in parameters(node, arguments, keywords):
            scope.set(parameter, value)
        inside = replace(
            context,
            function=node.name,
            first_loop=len(context.loops),
            first_test=len(context.tests),
            depth=context.depth + 1,
        )
        names = {last(dotted(item.func if isinstance(item, ast.Call) else item)) for item in node.decorator_list}
        if names & MAIN_DECORATORS:
            inside = inside.guarded(MAIN_ONLY)
        self.results.append([])
        self.block(node.body, scope, inside)
        return join(self.results.pop())


def parameters(node: Function, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> list[tuple[str, Value]]:
    """Names of a function's parameters with what a call gives them; an accelerator is known by its name or type."""
    names = [*node.args.posonlyargs, *node.args.args]
    found = []
    for position, parameter in enumerate([*names, *node.args.kwonlyargs]):
        value = keywords.get(parameter.arg, NOTHING)
        if position < min(len(arguments), len(names)):
            value = arguments[position]
        if value == NOTHING:
            annotation = last(dotted(parameter.annotation)) if parameter.annotation is not None else ""
            kind = _PARAMETER_KINDS.get(annotation) or _PARAMETER_KINDS.get(parameter.arg, "")
            value = Value(kind=kind) if kind else by_name(parameter.arg)
        found.append((parameter.arg, value))
    if node.args.vararg is not None:
        found.append((node.args.vararg.arg, Value(items=arguments[len(names) :])))
    return found
