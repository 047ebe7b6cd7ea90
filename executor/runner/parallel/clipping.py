"""torch's clipping by a norm of all gradients, done otherwise where a script's parameters ask for it."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """What a script asks of `torch.nn.utils.clip_grad_norm_`."""

    parameters: list[Any]
    max_norm: float
    norm_type: float
    error_if_nonfinite: bool
    foreach: bool | None

    def check(self, torch: Any, total: Any) -> None:
        """RuntimeError, as torch's own, where the script wants a finite norm and it is none."""
        if self.error_if_nonfinite and not torch.isfinite(total):
            raise RuntimeError(
                f"The total norm of order {self.norm_type} for gradients is non-finite, so it cannot be clipped."
            )


def clip_by(torch: Any, clip: Callable[[Clip], Any]) -> None:
    """After `import torch`: `clip` gives the norm of what it clipped, or None to leave it to torch."""
    original = torch.nn.utils.clip_grad_norm_

    @functools.wraps(original)
    def clip_grad_norm_(
        parameters: Any,
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> Any:
        given = [parameters] if hasattr(parameters, "grad") else list(parameters)
        asked = Clip(
            parameters=given,
            max_norm=max_norm,
            norm_type=float(norm_type),
            error_if_nonfinite=error_if_nonfinite,
            foreach=foreach,
        )
        total = clip(asked)
        return original(given, max_norm, norm_type, error_if_nonfinite, foreach) if total is None else total

    torch.nn.utils.clip_grad_norm_ = torch.nn.utils.clip_grad.clip_grad_norm_ = clip_grad_norm_
