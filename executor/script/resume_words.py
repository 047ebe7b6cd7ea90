"""Where a script's own words name a checkpoint to go on from: pure.

By the option's spelling alone, so that it holds for scripts whose parser cannot be read from their text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpu_plan.executor.script.option import plain_word

RESUME_WORDS = ("resume_from_checkpoint", "resume_from", "resume")
"""Options of scripts that go on from a checkpoint, dashes as underscores: the Trainer's, accelerate's examples', ..."""
_LOADING_WORDS = frozenset(
    {
        *RESUME_WORDS,
        "resume_checkpoint",
        "resume_path",
        "resume_ckpt",
        "load_checkpoint",
        "load_from_checkpoint",
        "load_state",
        "from_checkpoint",
        "checkpoint",
        "checkpoint_path",
        "ckpt",
        "ckpt_path",
    }
)
"""Those, and names under which a checkpoint may be given: not folders to save into, and not a model to begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """One option with its value among a script's words."""

    option: str
    """As it was written: `--resume_from_checkpoint`."""
    value: str
    index: int
    """Of the word that holds the value."""


def named(words: Sequence[str]) -> Iterator[Named]:
    """Every option that may name a checkpoint, with its value; without one it is a switch, and left out."""
    for index, word in enumerate(words):
        option, equals, value = word.partition("=")
        if not option.startswith("-") or plain_word(option) not in _LOADING_WORDS:
            continue
        if equals:
            yield Named(option=option, value=value, index=index)
        elif index + 1 < len(words) and not words[index + 1].startswith("--"):
            yield Named(option=option, value=words[index + 1], index=index + 1)


def replaced(words: Sequence[str], which: Named, value: str) -> tuple[str, ...]:
    """`words` with another value for one option."""
    joined = words[which.index] != which.value
    word = f"{which.option}={value}" if joined else value
    return (*words[: which.index], word, *words[which.index + 1 :])


def going_on_from(words: Sequence[str], checkpoint: str) -> tuple[str, ...]:
    """`words` whose options to resume from something say `checkpoint`: a job goes on from what it saved last, not from
    where it began."""
    found = tuple(words)
    for each in named(words):
        if plain_word(each.option) in RESUME_WORDS:
            found = replaced(found, each, checkpoint)
    return found
