"""A bug, or a change that is none: one edit or more of a good script of tests/support/doctor."""

from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "doctor"


@dataclass(frozen=True)
class Seed:
    script: str
    rule: str
    """The rule that has to find it; empty for a harmless change."""
    edits: tuple[tuple[str, str], ...]
    at: str
    """Text of the line on which the finding has to be."""

    def source(self):
        """The edited script. ValueError where an edit does not apply to exactly one place."""
        text = (SCRIPTS / f"{self.script}.py").read_text()
        for old, new in self.edits:
            if text.count(old) != 1:
                raise ValueError(f"{self.script}: {text.count(old)} places for {old!r}")
            text = text.replace(old, new)
        return text


def seed(script, rule, *edits, at=None):
    return Seed(script, rule, edits, at or edits[0][1].strip().splitlines()[0])


LM, CLASSIFY, TRANSLATE, PLAIN, TRAINER = (
    "lm_accelerate",
    "classify_accelerate",
    "translate_accelerate",
    "plain_ddp",
    "hf_trainer",
)
