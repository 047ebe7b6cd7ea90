"""A shell script as text: the words of the command that starts a module, its variables put in as far as the script sets
them. Nothing is run."""

import ast
import operator
import re
import shlex
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import MappingProxyType

_SET = re.compile(r"^\s*(?:export\s+|local\s+)?([A-Za-z_]\w*)=(?!\()(.*)$")
_LIST = re.compile(r"^\s*([A-Za-z_]\w*)\+?=\(\s*$(.*?)^\s*\)", re.M | re.S)
_ROW = re.compile(r"^\s*([A-Za-z_]\w*)=\(([^()$`]*)\)\s*(?:#.*)?$", re.M)
_COUNT = re.compile(r"\$\{#(\w+)\[@\]\}")
_ALL = re.compile(r"\"?\$\{(\w+)\[@\]\}\"?")
_USED = re.compile(r"\$\{(\w+)(?::-([^${}]*))?\}|\$(\w+)")
_DEFAULT, _NESTED = re.compile(r"\$\{(\w+):-([^${}]*)\}"), 8
"""A default that named a variable, or stood around another default: it is plain once those are put in."""
_END = re.compile(r"\s(?:&>>?|2>&1|[|;&>]|<(?![\w][^<>|&;]*>))|\s\$@|\s\"\$@\"")
_LAUNCHER = re.compile(r"(?:^|[\s;&])(?:torchrun|python3?|deepspeed|accelerate\s+launch|trl)\s")
_FILE = re.compile(r"[\w./-]{1,200}\.py")
_REMARK = re.compile(r"`\s*#[^`]*`")
"""A comment between words: a command that does nothing."""
_RUNNERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_LONGEST = 20_000
_OPENS, _CLOSES = re.compile(r"(?:if|case|for|while|until)\b"), re.compile(r"(?:.*;\s*)?(?:fi|esac|done)\b")
_ARGUMENT = re.compile(r"\$\{?[\d@*]")
"""What the script is given when it is started."""
_COMMAND = re.compile(r"""^(?:"[^"]*"|'[^']*'|[^\s"'$]|\$\{\w+\}|\$\w)*\s+(?:\w+=\S*\s+)*[A-Za-z]""")
"""Behind `NAME=value`: a command, whose variable alone it is."""
_SUM, _EXPR = re.compile(r"\$\(\(([^$]*?)\)\)(?!\))"), re.compile(r"\$\(expr\s+([^$()]*)\)")
_LARGEST = 10**15
_SIGNS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


def command_words(text: str, module: str) -> tuple[str, ...] | None:
    """Words behind the module's name in the last command that starts it; None where none does.

    A variable that the script does not set stays as it is written, with its `$`.
    """
    found = None
    for line, values, known, _ in _steps(text):
        at = line.find(module)
        if at >= 0:
            found = _words(line[at + len(module) :], values, known)
    return found


def launches(text: str) -> list[tuple[str, ...]]:
    """The words of every command that a launcher of Python begins, variables put in."""
    found = []
    for line, values, known, sets in _steps(text):
        if sets:
            continue
        filled = _filled(_listed(line, known)[:_LONGEST], values)
        start = _LAUNCHER.search(filled)
        if start is not None:
            words = tuple(word for word in _split(filled[start.start() :].lstrip(" ;&")) if word not in ("$@", ""))
            found.append(words)
    return found


def _steps(text: str) -> Iterator[tuple[str, Mapping[str, str], Mapping[str, str], bool]]:
    """Every line, with the values that the script has set before it, its arrays, and whether it sets one itself."""
    known = _lists(text)
    values: dict[str, str] = {}
    inside = 0
    for line in _logical(_counted(_ROW.sub("", _LIST.sub("", text)), known)):
        bare = line.strip()
        if bare.startswith("#"):
            continue
        inside += bool(_OPENS.match(bare)) - bool(_CLOSES.match(bare))
        setting = _SET.match(line)
        sets = setting is not None and not _COMMAND.match(setting[2])
        yield line, values, known, sets
        if setting is not None and sets:
            _assign(values, setting[1], _value(setting[2], values), inside > 0)


def _assign(values: dict[str, str], name: str, value: str, sometimes: bool) -> None:
    """Sets a variable. One that only an argument of the script changes keeps what it has; one that a branch changes
    to something else is no longer known."""
    if _ARGUMENT.search(value) and name in values:
        return
    values[name] = f"${name}" if sometimes and values.get(name, value) != value else value


def overrides(text: str, key: str) -> list[tuple[str, tuple[str, ...]]]:
    """Of every command with words that begin with `key`: the module or script that it starts, and what is behind."""
    found = []
    for words in launches(text):
        if any(word.lstrip("+").startswith(key) for word in words):
            at = next((at for at, word in enumerate(words) if _starts(words, at)), len(words))
            found += [(words[at], words[at + 1 :])] if at < len(words) else []
    return found


def _starts(words: Sequence[str], at: int) -> bool:
    """Whether a word is the module or the script that is started."""
    if words[at - 1] == "-m" and at:
        return words[at] not in _RUNNERS
    return _FILE.fullmatch(words[at]) is not None


def started(text: str) -> str | None:
    """The first Python file that a launcher is given; None where none is named plainly."""
    for line in _logical(text):
        if not line.lstrip().startswith("#") and _LAUNCHER.search(line):
            found = next((word for word in _split(line[:_LONGEST]) if _FILE.fullmatch(word)), None)
            if found is not None:
                return found
    return None


def options_of(words: Sequence[str], switches: Container[str] = ()) -> dict[str, object]:
    """Words behind `--name`, joined; True for a name without any, and for `switches`, which take none."""
    found: dict[str, object] = {}
    key = None
    for word in words:
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            key = None if given or name in switches else name
            found[name] = value if given else True
        elif key is not None:
            found[key] = word if found[key] is True else f"{found[key]} {word}"
    return found


def _logical(text: str) -> list[str]:
    """Lines with those that go on joined; comments between them are left out."""
    whole: list[str] = []
    going = False
    for line in text[: 50 * _LONGEST].splitlines():
        bare = line.rstrip()
        if going and bare.lstrip().startswith("#"):
            continue
        part = _REMARK.sub(" ", bare.removesuffix("\\"))
        if going:
            whole[-1] += " " + part
        else:
            whole.append(part)
        going = bare.endswith("\\")
    return whole


def _counted(text: str, lists: Mapping[str, str]) -> str:
    """The text with numbers of an array's words in their places; of one that is not set its name, with the `$`."""
    return _COUNT.sub(lambda one: str(len(lists[one[1]].split())) if one[1] in lists else f"${one[1]}", text)


def _lists(text: str) -> dict[str, str]:
    """Arrays that the script sets, as one text each."""
    found = {one[1]: one[2] for one in _ROW.finditer(text)}
    for one in _LIST.finditer(text):
        lines = (line.split(" #")[0] for line in one[2].splitlines() if not line.lstrip().startswith("#"))
        found[one[1]] = " ".join(lines)
    return found


def _listed(text: str, lists: Mapping[str, str]) -> str:
    """The text with the words of arrays in their places."""
    return _ALL.sub(lambda one: lists.get(one[1], one[0]), text)


def _words(rest: str, values: Mapping[str, str], lists: Mapping[str, str]) -> tuple[str, ...]:
    words = _split(_filled(_listed(rest, lists)[:_LONGEST], values))
    return tuple(word for word in words if word not in ("$@", ""))


def _split(text: str) -> list[str]:
    """Words up to a redirection or another command; a quote that was opened before the command ends it."""
    end = _END.search(_without_quoted(text))
    cut = text if end is None else text[: end.start()]
    for _ in range(4):
        try:
            return shlex.split(cut, comments=True)
        except ValueError:
            cut = cut[: max(cut.rfind('"'), cut.rfind("'"), 0)]
    return cut.split()


def _without_quoted(text: str) -> str:
    """The text with quoted pieces blanked, as long as it was."""
    return re.sub(r"'[^']*'|\"[^\"]*\"", lambda one: "_" * len(one[0]), text)


def _value(text: str, values: Mapping[str, str]) -> str:
    """What is behind `NAME=`, without quotes and comment."""
    filled = _filled(text, values)
    try:
        words = shlex.split(filled, comments=True)
    except ValueError:
        return filled.strip()
    return words[0] if words else ""


def _filled(text: str, values: Mapping[str, str]) -> str:
    def of(one: re.Match[str]) -> str:
        name, usual = one[1] or one[3], one[2]
        if name in values:
            return values[name]
        return one[0] if usual is None else usual

    filled = _USED.sub(of, text)
    for _ in range(_NESTED):
        before, filled = filled, _DEFAULT.sub(lambda one: values.get(one[1], one[2]), filled)
        if filled == before:
            break
    return _EXPR.sub(_reckoned, _SUM.sub(lambda one: _reckoned(one, values), filled))


def _reckoned(one: re.Match[str], values: Mapping[str, str] = MappingProxyType({})) -> str:
    """A sum of whole numbers, where all of its names are set; else the text as it stands."""
    text = re.sub(r"[A-Za-z_]\w*", lambda name: values.get(name[0], name[0]), one[1])
    try:
        found = _whole(ast.parse(text.strip(), mode="eval").body) if len(text) < 200 else None
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        found = None
    return one[0] if found is None else str(found)


def _whole(node: ast.expr) -> int | None:
    """The value of additions, products and whole divisions, as a shell has them; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int and abs(node.value) < _LARGEST else None
    if not isinstance(node, ast.BinOp) or type(node.op) not in _SIGNS:
        return None
    left, right = _whole(node.left), _whole(node.right)
    if left is None or right is None:
        return None
    found = _SIGNS[type(node.op)](left, right)
    return found if abs(found) < _LARGEST else None
