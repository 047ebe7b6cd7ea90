"""How large what others wrote may be once it is read."""

MAX_DEPTH = 64
MAX_DIGITS = 40
"""Of one number; Python itself refuses to print integers of more than 4,300."""
MAX_CONTAINERS = 4_000_000
"""Lists and objects of one text: some 70 bytes each, however short they are written."""


class MalformedError(ValueError):
    """Why a text is not what it claims to be, to stand behind its name: `is nested too deeply (at most 64 levels)`."""


def too_deep(most: int) -> MalformedError:
    return MalformedError(f"is nested too deeply (at most {most} levels)")


def decoded(text: bytes | str) -> str:
    """UTF-8 without its mark. MalformedError names the first byte that is none."""
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedError(f"is not UTF-8 text (byte {error.start})") from None


def check_depth(value: object, most: int) -> None:
    """MalformedError for lists and mappings in one another beyond `most` levels. Takes no stack."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(most):
        children = (item.values() if isinstance(item, dict) else item for item in level)
        level = [child for group in children for child in group if isinstance(child, (dict, list))]
        if not level:
            return
    raise too_deep(most)
