"""A mixed-integer linear program, built row by row and solved by HiGHS through scipy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Terms = dict[int, float]
Status = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the solver found within its time."""

    status: Status
    values: tuple[float, ...] = ()
    """Empty without a solution."""
    objective: float = float("inf")
    bound: float = float("-inf")
    """Nothing below this exists."""

    def integer(self, variable: int) -> int:
        """A variable that must be whole."""
        return round(self.values[variable])


@dataclass(slots=True)
class Program:
    """Variables by number and rows `low <= sum(coefficient x) <= high`."""

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    rows: list[tuple[Terms, float, float]] = field(default_factory=list)

    def variable(self, *, low: float = 0.0, high: float = 1.0, whole: bool = True) -> int:
        """The number of a new variable; by default binary."""
        self.low.append(low)
        self.high.append(high)
        self.whole.append(whole)
        return len(self.low) - 1

    def at_most(self, terms: Mapping[int, float], high: float) -> None:
        """Row `sum(terms) <= high`; infinite bounds add nothing."""
        if high != float("inf"):
            self.rows.append((dict(terms), float("-inf"), high))

    def at_least(self, terms: Mapping[int, float], low: float) -> None:
        """Row `sum(terms) >= low`."""
        self.rows.append((dict(terms), low, float("inf")))

    def equal(self, terms: Mapping[int, float], value: float) -> None:
        """Row `sum(terms) == value`."""
        self.rows.append((dict(terms), value, value))

    def minimise(self, objective: Mapping[int, float], seconds: float) -> Answer:
        """The least value of `objective`, exactly (no relative gap) unless the time runs out."""
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        costs = np.zeros(len(self.low))
        for variable, cost in objective.items():
            costs[variable] += cost
        row_index = [index for index, (terms, _, _) in enumerate(self.rows) for _ in terms]
        columns = [variable for terms, _, _ in self.rows for variable in terms]
        data = [value for terms, _, _ in self.rows for value in terms.values()]
        matrix = csr_array((data, (row_index, columns)), shape=(len(self.rows), len(self.low)))
        rows = LinearConstraint(matrix, [low for _, low, _ in self.rows], [high for _, _, high in self.rows])
        result = milp(
            costs,
            integrality=np.array(self.whole, dtype=int),
            bounds=Bounds(np.array(self.low), np.array(self.high)),
            constraints=rows,
            options={"time_limit": max(seconds, 0.05), "mip_rel_gap": 0.0, "presolve": True},
        )
        if result.status == 2:
            return Answer(status="infeasible")
        bound = result.mip_dual_bound if result.mip_dual_bound is not None else float("-inf")
        if result.x is None:
            return Answer(status="unknown", bound=bound)
        status: Status = "optimal" if result.status == 0 else "feasible"
        return Answer(status=status, values=tuple(result.x), objective=float(result.fun), bound=float(bound))
