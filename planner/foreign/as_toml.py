"""TOML of others as values. Pure."""

import re

from gpu_plan.planner.foreign.limits import MAX_DEPTH, MalformedError, check_depth, too_deep

MAX_BYTES = 2**20
_MOST_PARTS = 32
_LONG_KEY = re.compile(
    rf"""(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_MOST_PARTS}}}"""
)
"""tomllib walks a dotted key from its start for each of its parts: 500,000 of them take hours."""


def toml_table(content: bytes) -> dict[str, object]:
    """The file's table. MalformedError for all that is no TOML of bounded size and depth."""
    if len(content) > MAX_BYTES:
        raise MalformedError("is larger than 1 MiB: it cannot be a configuration")
    import tomllib  # three milliseconds, for the commands that read some

    try:
        text = content.decode("utf-8")
        if _LONG_KEY.search(text):
            raise MalformedError(f"holds a key of more than {_MOST_PARTS} parts")
        table = tomllib.loads(text)
    except RecursionError:
        raise too_deep(MAX_DEPTH) from None
    except MalformedError:
        raise
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError, and int() of too many digits
        raise MalformedError(f"is not valid TOML: {str(error)[:120]}") from None
    check_depth(table, MAX_DEPTH)
    return table
