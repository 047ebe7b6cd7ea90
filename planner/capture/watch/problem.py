"""An exception of the user's script in one line: what it says, and what it came from. Pure."""

_LENGTH = 300


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


def _line(problem: BaseException) -> str:
    said = _words(problem)
    return f"{type(problem).__name__}: {said}" if said else type(problem).__name__


def _words(problem: BaseException) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    if len(lines) < 2:
        return "".join(lines)[:_LENGTH]
    return f"{lines[0][: _LENGTH // 2]} {lines[-1][: _LENGTH // 2]}"


def _root(problem: BaseException) -> BaseException:
    """Where a chain of exceptions began, as a traceback shows it."""
    seen = {id(problem)}
    while True:
        earlier = problem.__cause__ or (None if problem.__suppress_context__ else problem.__context__)
        if earlier is None or id(earlier) in seen:
            return problem
        seen.add(id(earlier))
        problem = earlier
