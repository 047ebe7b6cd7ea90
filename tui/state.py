"""What the explorer looks at, as a value: the options given, and the configuration in focus. Pure.

Every state is a command line: `command` for the search, `focus_command` for the one configuration shown.
"""

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpu_plan.planner.options.request import Request
from gpu_plan.planner.plan.figures import StrategyChoice
from gpu_plan.planner.strategy.known import known_traits
from gpu_plan.planner.workload.adapters import stored_adapters
from gpu_plan.tui.choices import FLAGS, GENERATION, LARGEST, TRAINING, Choice, Menu, menu_of
from gpu_plan.tui.spread import spread, without_leftovers

_SPEC = re.compile(r"(?:(\d+)x)?(?:(\d+)x)?([A-Za-z].*)", re.IGNORECASE)

Words = tuple[tuple[str, str], ...]
"""Option names without dashes and their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One state of the explorer. Nothing in it is checked here: the planner refuses what makes no sense, in words."""

    model: str
    gpus: str
    given: Words = ()
    """Job options that hold for the search as well as for the picture."""
    settings: tuple[str, ...] = ()
    """`KEY=VALUE` words of `--set`."""
    trust_remote_code: bool = False
    revision: str | None = None
    no_cache: bool = False
    script_words: tuple[str, ...] = ()
    """Arguments of the training script, where `model` is one."""
    script_seconds: float | None = None
    unwalled: bool = False
    focus: Words = ()
    """Searched options of the configuration in the picture; what is missing is neutral there."""
    focus_settings: tuple[str, ...] = ()
    """`KEY=VALUE` words that the search gave it, where `settings` leave them open."""
    following: bool = True
    """Whether the picture is of the best plan, whichever that is."""

    def value(self, name: str) -> str | None:
        """What the picture has for an option; None where nothing says so."""
        return dict(self.focus).get(name) or dict(self.given).get(name)

    @property
    def menu(self) -> Menu:
        """The options of this kind of job."""
        return menu_of(self.model, self.task)

    @property
    def task(self) -> str | None:
        """`infer`; None for training."""
        return next((value for name, value in self.given if name == "task"), None)

    @property
    def search_words(self) -> tuple[str, ...]:
        """Words after `plan` of the search."""
        return (*self._job_words(dict(self.given)), *self._finer_words(self.settings), *self._script_words())

    @property
    def focus_words(self) -> tuple[str, ...]:
        """Words after `plan` of the configuration in the picture."""
        finer = self._finer_words(self._focused_settings)
        return (*self._job_words(self._focused()), "--pin", *finer, *self._script_words())

    @property
    def command(self) -> str:
        """The command line that makes the table of plans."""
        return shlex.join(("plan", *self.search_words))

    @property
    def focus_command(self) -> str:
        """The command line that makes the figures of the picture."""
        return shlex.join(("plan", *self.focus_words))

    @property
    def search_request(self) -> Request:
        """The search, as the main job asks it."""
        return self._request(dict(self.given), self.settings, pinned=False, command=self.command)

    @property
    def focus_request(self) -> Request:
        """The configuration in the picture, as the main job asks it."""
        return self._request(self._focused(), self._focused_settings, pinned=True, command=self.focus_command)

    def with_option(self, name: str, value: str | None) -> "State":
        """The option given as `value`, or no longer given. A searched one is then no longer tried otherwise."""
        given = {key: old for key, old in self.given if key != name}
        if value is not None:
            given[name] = value
        focus = tuple(pair for pair in self.focus if pair[0] != name)
        return replace(self, given=_ordered(_consistent(given)), focus=focus)

    def with_task(self, task: str | None) -> "State":
        """Training (None) or `infer`; of the options those that both know stay."""
        if task == self.task:
            return self
        kept = {name: value for name, value in self.given if name == "attention"}
        given = kept if task is None else {"task": task, **kept}
        return replace(self, given=_ordered(given), focus=(), focus_settings=(), following=True)

    def trying(self, name: str, value: str) -> "State":
        """Another value in the picture alone: the table of plans stays what it was."""
        focus = {**dict(self.focus), name: value}
        if self.task == "infer":
            focus = spread(focus, name, alone=self.devices == 1)
        elif name == "strategy":
            # Degrees of one strategy say nothing of another.
            stays = {"dp-replicate"} if _replicates(value) else set()
            focus = {key: old for key, old in focus.items() if key in stays or key not in (*_DEGREES, "schedule")}
        kept = self.focus_settings if name in _BATCH else ()
        return replace(self, focus=_ordered(focus), focus_settings=kept, following=False)

    def stepped(self, name: str, forward: bool = True, shown: str | None = None) -> "State":
        """The option's next or previous value after `shown`, what the picture has now."""
        choice = self.menu.choices[name]
        current = self.value(name) or shown or choice.default
        value = _step(choice, current, forward)
        if name in self.menu.searched:
            return self.trying(name, value)
        return self.with_option(name, None if value == choice.default else value)

    @property
    def devices(self) -> int:
        """As many as the words say; 1 where they name a machine instead."""
        numbers = [int(count) for count in _parts(self.gpus)[0].split("x") if count]
        return math.prod(numbers)

    def with_gpus(self, gpus: str) -> "State":
        return replace(self, gpus=gpus)

    def more_gpus(self, forward: bool = True) -> "State":
        """Twice or half as many devices of the same kind."""
        return replace(self, gpus=_scaled(self.gpus, forward))

    def other_gpu(self, names: tuple[str, ...], forward: bool = True) -> "State":
        """The same number of the next kind of device in `names`."""
        counts, name = _parts(self.gpus)
        same = [known.lower() for known in names]
        at = same.index(name.lower()) if name.lower() in same else (-1 if forward else 0)
        return replace(self, gpus=counts + names[(at + (1 if forward else -1)) % len(names)])

    def with_model(self, model: str) -> "State":
        """Another model; what was chosen for the old one no longer says anything."""
        words = self.script_words if model == self.model else ()
        return replace(
            self, model=model, focus=(), focus_settings=(), following=True, revision=None, script_words=words
        )

    def with_script_words(self, words: tuple[str, ...]) -> "State":
        """The training script with other arguments: what it does by itself is another then."""
        if words == self.script_words:
            return self
        return replace(self, script_words=words, focus=(), focus_settings=(), following=True)

    def with_setting(self, key: str, value: str | None) -> "State":
        """A `--set` key given as `value`, or no longer given."""
        kept = [word for word in self.settings if word.partition("=")[0] != key]
        return replace(self, settings=tuple(kept if value is None else [*kept, f"{key}={value}"]))

    def at(self, choice: StrategyChoice) -> "State":
        """The picture at a plan of the table."""
        return replace(self, focus=self._focus_of(choice), focus_settings=_settings_of(choice), following=False)

    def following_best(self, choice: StrategyChoice | None) -> "State":
        """The picture at the best plan, now and after every change."""
        if choice is None:
            return replace(self, following=True)
        return replace(self, focus=self._focus_of(choice), focus_settings=_settings_of(choice), following=True)

    def _focus_of(self, choice: StrategyChoice) -> Words:
        if self.task == "infer":
            degrees = {"tp": choice.tensor_parallel, "pp": choice.pipeline_parallel}
            split = {name: str(degree) for name, degree in degrees.items() if degree > 1}
            return _ordered({"strategy": choice.name, "offload": choice.offload, **split})
        found = {
            "strategy": choice.name,
            "offload": choice.offload,
            "checkpointing": choice.checkpointing,
            "micro-batch": str(choice.micro_batch_size),
        }
        found |= {name: str(getattr(choice, field)) for name, field in _DEGREES.items() if getattr(choice, field) > 1}
        if choice.pipeline_parallel > 1:
            found["schedule"] = choice.schedule
        if choice.gradient_accumulation_steps > 1:
            found["grad-accum"] = str(choice.gradient_accumulation_steps)
        return _ordered(found)

    def _focused(self) -> dict[str, str]:
        if self.task == "infer":
            return without_leftovers(dict(self.given), dict(self.focus))
        merged = {**dict(self.given), **dict(self.focus)}
        if "global-batch" in merged:
            # Micro batch and global batch say how often is accumulated.
            merged.pop("grad-accum", None)
        return _consistent(merged)

    def _job_words(self, options: Mapping[str, str]) -> tuple[str, ...]:
        words = [self.model, "--gpus", self.gpus]
        for name, value in _ordered(options):
            if name in FLAGS:
                words.append(f"--{name}" if value == "true" else f"--no-{name}")
            else:
                words += [f"--{name}", value]
        return tuple(words)

    @property
    def _focused_settings(self) -> tuple[str, ...]:
        given = {word.partition("=")[0] for word in self.settings}
        return (*self.settings, *(word for word in self.focus_settings if word.partition("=")[0] not in given))

    def _finer_words(self, settings: tuple[str, ...]) -> tuple[str, ...]:
        words = [word for setting in settings for word in ("--set", setting)]
        if self.trust_remote_code:
            words.append("--trust-remote-code")
        if self.revision is not None:
            words += ["--revision", self.revision]
        if self.no_cache:
            words.append("--no-cache")
        if self.script_seconds is not None:
            words += ["--script-seconds", f"{self.script_seconds:g}"]
        if self.unwalled:
            words.append("--unwalled")
        return tuple(words)

    def _script_words(self) -> tuple[str, ...]:
        return ("--", *self.script_words) if self.script_words else ()

    def _request(self, options: Mapping[str, str], settings: tuple[str, ...], *, pinned: bool, command: str) -> Request:
        return Request(
            model=self.model,
            gpus=self.gpus,
            words=tuple(_ordered(options)),
            settings=settings,
            pinned=pinned,
            explain=False,
            trust_remote_code=self.trust_remote_code,
            revision=self.revision,
            use_cache=not self.no_cache,
            command=command,
            script_words=self.script_words,
            script_seconds=self.script_seconds,
            unwalled=self.unwalled,
        )


_BATCH = frozenset({"micro-batch", "grad-accum"})
"""Options that leave the search's own settings as they are."""


_DEGREES = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "dp-replicate": "dp_replicate",
    "virtual-stages": "virtual_stages",
}
"""Options of degrees, and where a plan holds them."""


def _settings_of(choice: StrategyChoice) -> tuple[str, ...]:
    """What the search may have set of a plan beside its options."""
    every = [f"checkpoint.every={choice.checkpoint_every}"] if choice.checkpoint_every > 1 else []
    segments = ["alloc.expandable_segments=true"] if choice.expandable_segments else []
    return (*every, *([] if choice.reshards else ["fsdp.reshard_after_forward=false"]), *segments)


_ORDER = ("task", *dict.fromkeys((*TRAINING.choices, *GENERATION.choices)))


def _ordered(options: Mapping[str, str]) -> Words:
    """In the order in which options are shown; two states with the same options are equal."""
    return tuple((name, options[name]) for name in (*_ORDER, *sorted(set(options) - set(_ORDER))) if name in options)


def _consistent(options: Mapping[str, str]) -> dict[str, str]:
    """Without what would be refused because of another option's neutral value."""
    kept = dict(options)
    if not stored_adapters(kept.get("peft")).adapts:
        kept.pop("lora-rank", None)
        kept.pop("lora-targets", None)
    if kept.get("strategy", "auto") != "auto" and not _replicates(kept["strategy"]):
        kept.pop("dp-replicate", None)
    return kept


def _replicates(strategy: str) -> bool:
    traits = known_traits(strategy)
    return traits is not None and traits.replicates


def _step(choice: Choice, current: str, forward: bool) -> str:
    if not choice.values:
        return _doubled(current, forward, choice.least)
    at = choice.values.index(current) if current in choice.values else (-1 if forward else 0)
    return choice.values[(at + (1 if forward else -1)) % len(choice.values)]


def _doubled(text: str, forward: bool, least: int) -> str:
    digits = text.lower().removesuffix("k")
    number = int(digits) * (1024 if text.lower().endswith("k") else 1) if digits.isdigit() else least
    return str(max(least, min(LARGEST, number * 2 if forward else number // 2)))


def _parts(gpus: str) -> tuple[str, str]:
    """`2x8x` and `A100` of `2x8xA100`; a name without counts has an empty first part."""
    match = _SPEC.fullmatch(gpus.strip())
    if match is None:
        return "", gpus
    counts = "".join(f"{count}x" for count in match.group(1, 2) if count)
    return counts, match[3]


def _scaled(gpus: str, forward: bool) -> str:
    counts, name = _parts(gpus)
    numbers = [int(count) for count in counts.split("x") if count] or [1]
    total = numbers[0] * (numbers[1] if len(numbers) > 1 else 1)
    if len(numbers) > 1:
        nodes = numbers[0] * 2 if forward else numbers[0] // 2
        return (
            f"{nodes}x{numbers[1]}x{name}" if nodes > 1 else f"{numbers[1] if nodes else numbers[1] // 2 or 1}x{name}"
        )
    if forward:
        return f"{min(total * 2, 65536)}x{name}"
    return f"{max(1, total // 2)}x{name}"
