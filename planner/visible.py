"""Foreign text as it may be shown: what is not seen, or steers a terminal, stands there by its code. Pure."""


def visible(text: str) -> str:
    r"""`text` with controls, escapes, direction marks and halves of pairs written out, as `\x1b` or `\u202e`.

    What `str.isprintable` refuses but for spaces of any width, which become plain ones; line ends are written out too.
    Letters of every script stay.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _written(character) for character in text)


def _written(character: str) -> str:
    if character.isspace() and character not in "\t\n\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029":
        return " "
    return character.encode("unicode_escape").decode("ascii")
