"""The words that a plan adds to a script's own, and what the script cannot be told. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpu_plan.executor.launch.script_arguments import ScriptArgument
from gpu_plan.executor.script.option import Option, ScriptOptions

_OF_ALL_RANKS = ("total", "global", "effective", "all gpus", "across all", "all devices", "all processes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How each argument reaches the script."""

    words: tuple[str, ...] = ()
    """To be added to the script's arguments."""
    by_option: frozenset[str] = frozenset()
    """What the added words say, as fields of CurrentPlan."""
    by_user: frozenset[str] = frozenset()
    """What the user's own words say instead."""
    by_script: frozenset[str] = frozenset()
    """What the script asks for itself."""
    user_counts: Mapping[str, int] = field(default_factory=dict)
    """Whole numbers that the user's own words say, by field."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why the script cannot be told what is not needed whatever the script: one line by field."""
    not_applied: tuple[str, ...] = ()
    """One line each."""

    def knows(self, name: str) -> bool:
        """Whether the script runs with the plan's value of a field, or with the user's."""
        return name in self.by_option | self.by_user | self.by_script


def tell(asked: Iterable[ScriptArgument], options: ScriptOptions, user: Sequence[str], reads: frozenset[str]) -> Told:
    """Words for every argument that the script has an option for; the user's own words win.

    `reads` are the fields of CurrentPlan that the script asks for itself.
    """
    words: list[str] = []
    by_option, by_user, by_script, lost = set[str](), set[str](), set[str](), list[str]()
    counts: dict[str, int] = {}
    reasons: dict[str, str] = {}
    for argument in asked:
        option = options.by_word(*argument.words)
        given = None if option is None else given_as(option, options, user)
        if given is not None:
            by_user.add(argument.field)
            count = user_value(option, options, user)
            if count is not None:
                counts[argument.field] = count
            if not _says_the_same(argument, option, given):
                lost.append(f"{argument.what}: your own {given} wins")
            continue
        found = None if option is None or options.commands else _words(argument, option)
        if found is not None:
            words += found
            by_option.add(argument.field)
        elif argument.field and argument.field in reads:
            by_script.add(argument.field)
        elif argument.needed:
            lost.append(_why(argument, option, options))
        elif argument.field:
            reasons[argument.field] = _why(argument, option, options)
    return Told(
        words=tuple(words),
        by_option=frozenset(by_option),
        by_user=frozenset(by_user),
        by_script=frozenset(by_script),
        user_counts=counts,
        reasons=reasons,
        not_applied=tuple(lost),
    )


def given_as(option: Option, options: ScriptOptions, user: Sequence[str]) -> str | None:
    """The user's words for an option, `--batch-size 8`; None where there are none. Abbreviations count."""
    for index, word in enumerate(user):
        name, equals, _ = word.partition("=")
        if not word.startswith("-") or not _names(name, option, options):
            continue
        if equals or option.takes == "flag":
            return word
        following = user[index + 1] if index + 1 < len(user) else ""
        return f"{name} {following}" if following and not following.startswith("--") else name
    return None


def user_value(option: Option | None, options: ScriptOptions, user: Sequence[str]) -> int | None:
    """The whole number that the user gives to an option, if any."""
    given = None if option is None else given_as(option, options, user)
    text = "" if given is None else given.replace("=", " ").rpartition(" ")[2]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _names(name: str, option: Option, options: ScriptOptions) -> bool:
    if name in option.spellings:
        return True
    if not name.startswith("--") or name in options.options:
        return False
    matches = {options.options[spelling].name for spelling in options.options if spelling.startswith(name)}
    return matches == {option.name}


def _says_the_same(argument: ScriptArgument, option: Option | None, given: str) -> bool:
    value = given.replace("=", " ").rpartition(" ")[2]
    if isinstance(argument.value, bool):
        off = option is not None and given == option.off
        said = value.lower() not in ("false", "no", "0") and not off
        return said == argument.value
    return value in (argument.value, *argument.others)


def _words(argument: ScriptArgument, option: Option) -> list[str] | None:
    """The option with its value; None where it cannot say that."""
    if isinstance(argument.value, bool):
        return _switch(argument, argument.value, option)
    if option.takes not in ("value", "boolean") or _is_of_all_ranks(argument, option):
        return None
    for value in (argument.value, *argument.others):
        if not option.choices or value in option.choices:
            return [option.name, value]
    return None


def _switch(argument: ScriptArgument, on: bool, option: Option) -> list[str] | None:
    if option.takes == "boolean":
        return [option.name, "true" if on else "false"]
    if option.takes == "flag":
        if on:
            return [option.name]
        return [option.off] if option.off is not None else []
    return None


def _is_of_all_ranks(argument: ScriptArgument, option: Option) -> bool:
    """Whether a batch size is, by its help text, that of all ranks together."""
    text = option.help.lower()
    ambiguous = option.word in ("batch", "batch_size", "train_batch_size")
    return argument.field == "micro_batch_size" and ambiguous and any(word in text for word in _OF_ALL_RANKS)


def _why(argument: ScriptArgument, option: Option | None, options: ScriptOptions) -> str:
    if options.commands:
        return f"{argument.what}: the script has subcommands, give it yourself after --"
    if option is None:
        return f"{argument.what}: the script has no option for it, and does not ask current_plan() for it"
    if _is_of_all_ranks(argument, option):
        return f"{argument.what}: {option.name} of the script is of all ranks together, give it yourself after --"
    shown = f" (it takes {', '.join(option.choices)})" if option.choices else ""
    return f"{argument.what}: the script's {option.name} does not take that value{shown}"
