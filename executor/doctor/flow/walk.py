"""Reads statements in the order in which they would run, entering the script's own functions where they are called."""

import ast
from dataclasses import replace

from gpu_plan.executor.doctor.flow import make
from gpu_plan.executor.doctor.flow import values as v
from gpu_plan.executor.doctor.flow.events import MAIN_ONLY, Call, Context, Leave, Loop, Setting
from gpu_plan.executor.doctor.flow.functions import MAIN_DECORATORS, Function, FunctionReader
from gpu_plan.executor.doctor.flow.guards import guards_of
from gpu_plan.executor.doctor.flow.names import dotted, last
from gpu_plan.executor.doctor.flow.scope import Scope
from gpu_plan.executor.doctor.flow.values import NOTHING, Value


class Walker(FunctionReader):
    """Walks one script."""

    def run(self, tree: ast.Module) -> None:
        """Reads the module, then what nothing in it calls: that is called by others."""
        scope = Scope()
        self.block(tree.body, scope, Context())
        self.flow.entered = len(self.flow.events)
        named = {last(dotted(node.func)) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        # Entry points first: what they call is read with what they give.
        order = sorted(self.functions, key=lambda pair: (pair[0].name in named, pair[1] is not None))
        for function, owner in order:
            if id(function) in self.entered or (owner is not None and self.passive(owner)):
                continue
            self.enter(self.as_value(function, owner), (), {}, Context())

    def block(self, body: list[ast.stmt], scope: Scope, context: Context) -> None:
        """Reads statements one after another."""
        for statement in body:
            self.statement(statement, scope, context)
            if isinstance(statement, ast.If) and not statement.orelse and leaves(statement.body):
                _body, other = self._guards(statement.test, scope, context)
                context = context.guarded(*(other & {MAIN_ONLY}))

    def _guards(self, test: ast.expr, scope: Scope, context: Context) -> tuple[frozenset[str], frozenset[str]]:
        return guards_of(test, lambda node: self._quiet(node, scope, context))

    def _quiet(self, node: ast.expr, scope: Scope, context: Context) -> Value:
        self.silent += 1
        try:
            return self.eval(node, scope, context)
        finally:
            self.silent -= 1

    def statement(self, node: ast.stmt, scope: Scope, context: Context) -> None:
        reader = getattr(self, f"_{type(node).__name__.lower()}_statement", None)
        if reader is not None:
            reader(node, scope, context)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.eval(child, scope, context)

    def _expr_statement(self, node: ast.Expr, scope: Scope, context: Context) -> None:
        before = len(self.flow.events)
        self.eval(node.value, scope, context)
        events = self.flow.events
        if len(events) > before and isinstance(event := events[-1], Call) and event.node is node.value:
            events[-1] = replace(event, dropped=True)
            self._setting_by_call(event, context)

    def _setting_by_call(self, call: Call, context: Context) -> None:
        if call.name in {"os.environ.setdefault", "os.putenv"} and len(call.node.args) == 2:
            name = call.node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                gentle = call.name.endswith("setdefault")
                value = call.node.args[1]
                self.record(Setting(node=call.node, name=name.value, value=value, context=context, conditional=gentle))

    def _assign_statement(self, node: ast.Assign, scope: Scope, context: Context) -> None:
        value = self._under_tests(self.eval(node.value, scope, context), context)
        for target in node.targets:
            self._setting(target, node.value, context)
            self.bind(target, value, scope, context)

    def _annassign_statement(self, node: ast.AnnAssign, scope: Scope, context: Context) -> None:
        if node.value is not None:
            self.bind(node.target, self._under_tests(self.eval(node.value, scope, context), context), scope, context)

    def _augassign_statement(self, node: ast.AugAssign, scope: Scope, context: Context) -> None:
        added = self.eval(node.value, scope, context)
        held = self.eval(node.target, scope, context)
        result = self.operation(node.op, held, added, node.value, node.target)
        self.bind(node.target, self._under_tests(result, context), scope, context)

    def _under_tests(self, value: Value, context: Context) -> Value:
        """What is assigned under a test that differs between ranks differs between ranks."""
        here = context.tests[context.first_test :]
        local = any(test.local for test in here)
        return value.with_marks(v.LOCAL) if local and value.kind in {"", "rank"} else value

    def _setting(self, target: ast.expr, value: ast.expr, context: Context) -> None:
        if not isinstance(target, ast.Subscript) or self.full_name(target.value) != "os.environ":
            return
        if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
            name = target.slice.value
            asked = any(name in ast.unparse(test.node) for test in context.tests)
            self.record(Setting(node=target, name=name, value=value, context=context, conditional=asked))

    def full_name(self, node: ast.expr) -> str:
        """The dotted name of `node` with imports resolved."""
        head, dot, tail = dotted(node).partition(".")
        return f"{self.imports.get(head, head)}{dot}{tail}"

    def _if_statement(self, node: ast.If, scope: Scope, context: Context) -> None:
        value = self.eval(node.test, scope, context)
        body_guards, other_guards = self._guards(node.test, scope, context)
        tested = context.tested(node.test, local=v.LOCAL in v.all_marks(value))
        yes, no = scope.copy(), scope.copy()
        self.block(node.body, yes, tested.guarded(*body_guards))
        self.block(node.orelse, no, tested.guarded(*other_guards))
        going_on = [branch for branch, body in ((yes, node.body), (no, node.orelse)) if not leaves(body)]
        scope.merge(*(going_on or [yes, no]))

    def _for_statement(self, node: ast.For, scope: Scope, context: Context) -> None:
        over = self.eval(node.iter, scope, context)
        loop = Loop(node=node, over=over, guards=context.guards, tests=len(context.tests))
        self._loop(node, scope, context, loop, make.element(over))

    def _while_statement(self, node: ast.While, scope: Scope, context: Context) -> None:
        self.eval(node.test, scope, context)
        loop = Loop(node=node, over=NOTHING, guards=context.guards, tests=len(context.tests))
        self._loop(node, scope, context, loop, None)

    def _loop(
        self, node: ast.For | ast.While, scope: Scope, context: Context, loop: Loop, element: Value | None
    ) -> None:
        inside = replace(context, loops=(*context.loops, loop))
        # What one round leaves behind is there in the next: the outermost loop is read twice, first in silence.
        rounds = 1 if self.silent or context.loops else 2
        before = scope.copy()
        for turn in range(rounds):
            quiet = turn < rounds - 1
            self.silent += quiet
            if element is not None and isinstance(node, ast.For):
                self.bind(node.target, element, scope, context)
            self.block(node.body, scope, inside)
            self.silent -= quiet
            after = scope.copy()
            scope.merge(before, after)
        self.block(node.orelse, scope, context)

    def _with_statement(self, node: ast.With, scope: Scope, context: Context) -> None:
        names = set()
        guards: set[str] = set()
        for item in node.items:
            value = self.eval(item.context_expr, scope, context)
            called = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
            name = called.attr if isinstance(called, ast.Attribute) else last(dotted(called))
            names.add(name)
            if name in MAIN_DECORATORS:
                guards.add(MAIN_ONLY)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value, scope, context)
        inside = replace(context, withs=context.withs | names).guarded(*guards)
        self.block(node.body, scope, inside)

    def _asyncwith_statement(self, node: ast.AsyncWith, scope: Scope, context: Context) -> None:
        self.block(node.body, scope, context)

    def _try_statement(self, node: ast.Try, scope: Scope, context: Context) -> None:
        self.block(node.body, scope, context)
        for handler in node.handlers:
            branch = scope.copy()
            self.block(handler.body, branch, context)
            if not leaves(handler.body):
                scope.merge(scope.copy(), branch)
        self.block(node.orelse, scope, context)
        self.block(node.finalbody, scope, context)

    def _match_statement(self, node: ast.Match, scope: Scope, context: Context) -> None:
        self.eval(node.subject, scope, context)
        branches = [scope.copy()]
        for case in node.cases:
            branch = scope.copy()
            self.block(case.body, branch, context)
            branches.append(branch)
        scope.merge(*branches)

    def _break_statement(self, node: ast.Break, scope: Scope, context: Context) -> None:
        self.record(Leave(node=node, context=context))

    def _continue_statement(self, node: ast.Continue, scope: Scope, context: Context) -> None:
        self.record(Leave(node=node, context=context))

    def _return_statement(self, node: ast.Return, scope: Scope, context: Context) -> None:
        value = self._under_tests(self.eval(node.value, scope, context), context)
        self.record(Leave(node=node, context=context))
        if self.results:
            self.results[-1].append(value)

    def _Yield(self, node: ast.Yield, scope: Scope, context: Context) -> Value:
        value = self.eval(node.value, scope, context)
        if self.results:
            self.results[-1].append(make.each(value, value))
        return NOTHING

    def _global_statement(self, node: ast.Global, scope: Scope, context: Context) -> None:
        return

    def _functiondef_statement(self, node: Function, scope: Scope, context: Context) -> None:
        self.define(node, scope, None)
        for decorator in node.decorator_list:
            self.eval(decorator, scope, context)
        scope.set(node.name, Value(kind="function", target=node))

    _asyncfunctiondef_statement = _functiondef_statement

    def _classdef_statement(self, node: ast.ClassDef, scope: Scope, context: Context) -> None:
        self.around[id(node)] = scope
        fields = self.fields.setdefault(id(node), {})
        for statement in node.body:
            if isinstance(statement, Function):
                self.define(statement, scope, node)
            elif isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if isinstance(target, ast.Name):
                        fields[target.id] = self.eval(statement.value, scope, context)
        scope.set(node.name, Value(kind="class", target=node))


def leaves(body: list[ast.stmt]) -> bool:
    """Whether a block always ends by leaving: return, raise, break, continue, or the interpreter's end."""
    if not body:
        return False
    final = body[-1]
    if isinstance(final, ast.Return | ast.Raise | ast.Break | ast.Continue):
        return True
    if isinstance(final, ast.Expr) and isinstance(final.value, ast.Call):
        return dotted(final.value.func) in {"sys.exit", "exit", "quit", "os._exit"}
    return isinstance(final, ast.If) and leaves(final.body) and leaves(final.orelse)
