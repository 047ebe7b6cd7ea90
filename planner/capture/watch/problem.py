"""An exception of the user's script in one line: what it says, and what it came from. Pure."""

_LENGTH = 300
_KERNELS = {
    "flash_attn": "torch.nn.functional.scaled_dot_product_attention runs the same kernel",
    "flash_attn_interface": "torch.nn.functional.scaled_dot_product_attention is planned in its place",
    "triton": "its kernels are compiled on a GPU",
    "liger_kernel": "a Trainer's use_liger_kernel is planned without it",
    "xformers": "torch.nn.functional.scaled_dot_product_attention keeps as much",
    "apex": "torch's fused optimizers and norms keep as much",
    "mamba_ssm": "transformers' Mamba is planned with its kernels",
    "causal_conv1d": "transformers' Mamba is planned with its kernels",
    "transformer_engine": "--precision fp8-mixed plans its layers for MODEL",
    "vllm": "--generations plans its rollouts for MODEL",
}
"""Packages whose kernels need a GPU, with what can be planned in their place."""


def described(problem: BaseException) -> str:
    """`ImportError: cannot import x: No module named 'y'; caused by ...`, shortened.

    Of a text of several lines the first and the last are kept: libraries put the cause at the end ("look up to see its
    traceback"). The cause is named where its own words are not there already.
    """
    text = _line(problem)
    root = _root(problem)
    if root is not problem and _words(root) not in text:
        text = f"{text}; caused by {_line(root)}"
    return text


def in_place_of_kernels(problem: BaseException) -> str:
    """What to do where a package of GPU kernels is missing, which no machine without one installs; else empty."""
    root = _root(problem)
    for one in (problem, root):
        name = (getattr(one, "name", None) or "").partition(".")[0] if isinstance(one, ImportError) else ""
        if name in _KERNELS:
            return f" ({name} is of GPUs: guard its import, as the loop may fall back; {_KERNELS[name]})"
    return ""


def _line(problem: BaseException) -> str:
    said = _words(problem)
    return f"{type(problem).__name__}: {said}" if said else type(problem).__name__


def _words(problem: BaseException) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    if len(lines) < 2:
        return "".join(lines)[:_LENGTH]
    return f"{lines[0][: _LENGTH // 2]} {lines[-1][: _LENGTH // 2]}"


def _root(problem: BaseException) -> BaseException:
    """Where a chain of exceptions began, as a traceback shows it; of causes that are said the first one.

    What stood behind the first cause was handled: transformers asks for a package's version before it imports it.
    """
    said = problem.__cause__ is not None
    seen = {id(problem)}
    while True:
        earlier = problem.__cause__ or (None if said or problem.__suppress_context__ else problem.__context__)
        if earlier is None or id(earlier) in seen:
            return problem
        seen.add(id(earlier))
        problem = earlier
