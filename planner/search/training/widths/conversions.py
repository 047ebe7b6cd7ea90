"""Which of the user's own lines convert tensors to a wider type in a step."""

from gpu_plan.planner.search.evaluator import J
from gpu_plan.planner.search.search import Found

_WIDE = ("float32", "float64")
_CONVERTS = "_to_copy"


def widened(found: Found[J]) -> dict[str, int]:
    """Bytes of all that each line converts in one pass of the best plan, or of the first that was evaluated.

    By line, as origins name it; empty for a model whose code is not the user's.
    """
    judgements = [*found.plans, *(rejected.judgement for rejected in found.rejected)]
    judged = next((judgement for judgement in judgements if not judgement.states_only), None)
    if judged is None:
        return {}
    trace = judged.stream.trace
    sizes = trace.tensor_bytes(judged.replayed)
    lines: dict[str, int] = {}
    for tensor, origin in enumerate(trace.tensor_origin):
        wide = trace.tensor_shape[tensor].endswith(_WIDE)
        if origin and wide and trace.operator_names[int(trace.tensor_operator[tensor])] == _CONVERTS:
            lines[origin] = lines.get(origin, 0) + int(sizes[tensor])
    return lines
