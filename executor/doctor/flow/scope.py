"""Names and what they hold, function by function."""

from gpu_plan.executor.doctor.flow.values import MAYBE_PREPARED, NOTHING, PREPARED, Value, join


class Scope:
    """Names of one function, with those around it behind them."""

    __slots__ = ("around", "names")

    def __init__(self, around: "Scope | None" = None, names: dict[str, Value] | None = None) -> None:
        self.around = around
        self.names: dict[str, Value] = {} if names is None else names

    def get(self, name: str) -> Value:
        """What `name` holds; nothing where it is not bound."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.around
        return NOTHING

    def bound(self, name: str) -> bool:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return True
            scope = scope.around
        return False

    def set(self, name: str, value: Value) -> None:
        """Binds where the name is already bound in this function, else here: closures see later changes."""
        self.names[name] = value

    def copy(self) -> "Scope":
        return Scope(self.around, dict(self.names))

    def merge(self, *branches: "Scope") -> None:
        """Takes what any of `branches` may have left behind."""
        names = {name for branch in branches for name in branch.names}
        merged = {}
        for name in names:
            held = [branch.names[name] for branch in branches if name in branch.names]
            value = join(held)
            if value.has(PREPARED) and not all(each.has(PREPARED) for each in held):
                value = value.without(PREPARED).with_marks(MAYBE_PREPARED)
            merged[name] = value
        self.names = merged
