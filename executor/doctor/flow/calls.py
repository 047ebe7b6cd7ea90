"""Reads calls: whom they call, what they give and what they do to the names around them."""

import ast
from abc import abstractmethod

from gpu_plan.executor.doctor.flow import make
from gpu_plan.executor.doctor.flow import values as v
from gpu_plan.executor.doctor.flow.events import Call, Context
from gpu_plan.executor.doctor.flow.expressions import WATCHED, ExpressionReader
from gpu_plan.executor.doctor.flow.guards import by_name
from gpu_plan.executor.doctor.flow.names import dotted, last, wraps
from gpu_plan.executor.doctor.flow.scope import Scope
from gpu_plan.executor.doctor.flow.values import NOTHING, Value, flat, join, spread

_IN_PLACE = frozenset({"all_reduce", "broadcast", "all_gather", "broadcast_object_list", "all_gather_into_tensor"})
_PREPARING = frozenset({"prepare", "prepare_model", "prepare_data_loader", "prepare_optimizer", "prepare_scheduler"})


class CallReader(ExpressionReader):
    """Evaluates calls; subclasses know how to enter the script's own functions."""

    @abstractmethod
    def enter(
        self, callee: Value, arguments: tuple[Value, ...], keywords: dict[str, Value], context: Context
    ) -> Value | None:
        """What a function or class of the script gives, its body read; None where it is not one of them."""

    def _Call(self, node: ast.Call, scope: Scope, context: Context) -> Value:
        receiver, callee, name = self._callee(node.func, scope, context)
        arguments = self._arguments(node, scope, context)
        keywords = {word.arg: self.eval(word.value, scope, context) for word in node.keywords if word.arg}
        for word in node.keywords:
            if not word.arg:
                self.eval(word.value, scope, context)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else last(name)
        result = self._result(node, name, method, receiver, callee, arguments, keywords, scope, context)
        self._effects(node, name, method, receiver, arguments, scope)
        self.record(
            Call(node=node, name=name, method=method, receiver=receiver, arguments=arguments, keywords=keywords,
                 result=result, context=context)
        )  # fmt: skip
        return result

    def _callee(self, func: ast.expr, scope: Scope, context: Context) -> tuple[Value, Value, str]:
        """Receiver, callee and dotted name of a call."""
        name = dotted(func)
        head, _, tail = name.partition(".")
        if head in self.imports and not scope.bound(head):
            return NOTHING, NOTHING, f"{self.imports[head]}.{tail}" if tail else self.imports[head]
        if isinstance(func, ast.Attribute):
            receiver = self.eval(func.value, scope, context)
            callee = (
                self._attribute(func, scope, context, called=True)
                if receiver.kind in {"instance", "class", *WATCHED}
                else NOTHING
            )
            return receiver, callee, name
        return NOTHING, self.eval(func, scope, context), name

    def _arguments(self, node: ast.Call, scope: Scope, context: Context) -> tuple[Value, ...]:
        found: list[Value] = []
        for argument in node.args:
            value = self.eval(argument, scope, context)
            found += value.items if isinstance(argument, ast.Starred) and value.items is not None else (value,)
        return tuple(found)

    def _result(
        self, node: ast.Call, name: str, method: str, receiver: Value, callee: Value, arguments: tuple[Value, ...],
        keywords: dict[str, Value], scope: Scope, context: Context,
    ) -> Value:  # fmt: skip
        if receiver.kind == "accelerator" and method in _PREPARING:
            return self._prepared(node, arguments)
        if callee.kind in {"function", "class"}:
            entered = self.enter(callee, arguments, keywords, context)
            if entered is not None:
                return entered
        if callee.kind == "model" or (callee.kind == "instance" and callee.target is not None):
            called = self.method_of(callee, "__call__") if callee.kind == "instance" else NOTHING
            return self.enter(called, arguments, keywords, context) or Value(kind="output", marks=frozenset({v.LOCAL}))
        if callee.kind == "criterion":
            return Value(marks=frozenset({v.LOSS, v.LOCAL}))
        if name.endswith(("environ.get", "getenv")) and node.args and isinstance(node.args[0], ast.Constant):
            return self._environment(str(node.args[0].value))
        if (ranked := by_name(method)).kind and not arguments:
            return ranked
        if receiver != NOTHING:
            known = make.of_method(receiver, method, arguments)
            return known if known is not None else spread([receiver, *arguments, *keywords.values()])
        if (wrapped := self._wrapped(name, arguments)) is not None:
            return wrapped
        known = make.of_call(name, arguments, keywords, node)
        if known is None:
            return spread([*arguments, *keywords.values()])
        if known.kind == "optimizer":
            self.flow.optimizer_sources[id(node)] = make.sources_of((*arguments, *keywords.values()))
        return known

    def _prepared(self, node: ast.Call, arguments: tuple[Value, ...]) -> Value:
        given = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        results = []
        for position, value in enumerate(arguments):
            if not value.kind and len(given) == len(arguments) and value.items is None:
                kind = make.guess(last(dotted(given[position])))
                value = Value(kind=kind, origins=value.origins or frozenset({id(given[position])}))
            for leaf in flat(value):
                self.flow.prepared |= leaf.origins
            results.append(value.with_marks(v.PREPARED).without(v.UNWRAPPED))
        if not results:
            return NOTHING
        return results[0] if len(results) == 1 else Value(items=tuple(results))

    def _wrapped(self, name: str, arguments: tuple[Value, ...]) -> Value | None:
        """What wrapping and compiling give."""
        first = arguments[0] if arguments else NOTHING
        if name == "torch.compile" and arguments:
            return first.with_marks(v.COMPILED)
        if wraps(name):
            self.flow.wrapped |= first.origins
            return Value(kind="model", marks=first.marks | {v.WRAPPED}, origins=first.origins)
        if last(name) == "fully_shard":
            self.flow.wrapped |= first.origins
            return first.with_marks(v.WRAPPED)
        if name == "deepspeed.initialize":
            return Value(items=(Value(kind="engine"), NOTHING, NOTHING, NOTHING))
        return None

    def _effects(
        self, node: ast.Call, name: str, method: str, receiver: Value, arguments: tuple[Value, ...], scope: Scope
    ) -> None:
        """What a call does to the names that it is given."""
        collective = method in _IN_PLACE and name.startswith(("torch.distributed", "dist.", "accelerate.utils"))
        if collective:
            for argument in node.args:
                if isinstance(argument, ast.Name) and scope.bound(argument.id):
                    scope.set(argument.id, make.agreed(scope.get(argument.id)))
            return
        if not isinstance(node.func, ast.Attribute) or not isinstance(node.func.value, ast.Name):
            return
        held = node.func.value.id
        if receiver.kind == "model" and method == "compile":
            scope.set(held, receiver.with_marks(v.COMPILED))
        # An object that takes in what differs between ranks differs between ranks; what is given a model only calls it.
        elif any(argument.kind == "model" for argument in arguments):
            return
        elif not receiver.kind and scope.bound(held) and (taken := spread(arguments)).marks:
            scope.set(held, join([Value(marks=receiver.marks, items=None), taken]))
