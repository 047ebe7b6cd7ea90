"""From option words to a recipe: values checked before any work is done."""

from collections.abc import Mapping, Sequence

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.options.recipe.engine import ENGINE_WORDS, EngineGiven, read_engine
from gpu_plan.planner.options.settings import parse_settings
from gpu_plan.planner.options.training.contradictions import check_every
from gpu_plan.planner.options.values import choice, positive
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.workload.adapters import NO_ADAPTERS, Peft
from gpu_plan.planner.workload.recipes import CALLED, LIGER, LOGITS, PPO, RECIPES, REFERENCES, WHOLE, Recipe
from gpu_plan.planner.workload.training import Attention, Checkpointing

_ROLLOUTS = ("generations", "reward-model")
RECIPE_WORDS = ("prompt-len", "completion-len", "reference", "teacher", *_ROLLOUTS, "critic", "vllm", "vllm-sleep")
"""Options that only a recipe has."""
_SCRIPTS = (
    "recipe", *RECIPE_WORDS, *ENGINE_WORDS, "seq-len", "peft", "lora-rank", "lora-targets", "stack", "grad-accum",
)  # fmt: skip
"""What the recipe's own script and its engine are told, and nobody else."""
_STACK, _PACKED = "trl", "nf4"
DROPOUT, DOUBLE, BASE = "lora.dropout", "quant.double", "quant.base"
REENTRANT = "checkpoint.reentrant"
SCRIPT_SETTINGS = (LIGER, LOGITS, DROPOUT, DOUBLE, BASE, REENTRANT)
"""Keys of `--set` that the recipe's own script is told, and nobody else."""
DEFAULT_LEN = 512
"""Tokens of prompt and of completion each, where neither is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeGiven:
    """One recipe with its options."""

    recipe: Recipe
    prompt_len: int
    completion_len: int
    reference: str | None
    teacher: str | None
    micro_batch: int
    grad_accum: int
    accumulates: bool
    """Whether somebody said how many steps there are."""
    lora_rank: int | None
    lora_targets: str
    four_bits: bool = False
    """Whether the frozen base is packed."""
    attention: str = ""
    """As transformers names it; empty: its own choice."""
    generations: int = 1
    """Completions of one prompt."""
    reward_model: str | None = None
    lora_dropout: float = 0.0
    double_quant: bool = False
    """Whether the constants of a packed base are packed again."""
    whole_logits: bool = False
    """Whether logits of the completions are made whole, as ms-swift's trainer makes them."""
    liger: bool = False
    """Whether Liger's kernels replace the trained model's layers: `use_liger_kernel`."""
    reentrant: bool = False
    """Whether checkpoints are torch's reentrant ones: `gradient_checkpointing_kwargs` of the trainer."""
    engine: EngineGiven | None = None
    """What generates beside the trainer; None: the model's own `generate`, or nothing."""
    words: tuple[tuple[str, str], ...] = ()
    """What is left for the search."""

    @property
    def roles(self) -> tuple[str, ...]:
        """What its models are called, the one that is trained first."""
        if not self.recipe.rolls_out:
            return self.recipe.roles
        reference = self.recipe.roles[1:] if self.reference == "kept" else ()
        return (*self.recipe.roles[:1], *reference, *(("reward model",) if self.reward_model else ()))


def refuse_strays(words: Mapping[str, str], settings: Sequence[str] = ()) -> None:
    """UsageError for options of a recipe where none is named."""
    refuse_logits(settings)
    for name in RECIPE_WORDS:
        if name == "critic" and name in words:
            raise UsageError(f"--critic is about PPO's: add --recipe {PPO}")
        if name in words:
            raise UsageError(f"--{name} is about a job of several models: add --recipe, such as --recipe dpo")


def refuse_logits(settings: Sequence[str]) -> None:
    """UsageError for a word that the script of one recipe alone is told."""
    if any(word.partition("=")[0] == LOGITS for word in settings):
        raise UsageError(f"--set {LOGITS} is about --recipe grpo: leave it out")


def read_recipe(words: Mapping[str, str], settings: Sequence[str]) -> RecipeGiven:
    """What the words mean; UsageError in one line for every value that makes no sense."""
    recipe = _recipe(words["recipe"])
    if "critic" in words:
        raise UsageError(f"--recipe {recipe.name} has no critic: leave --critic out")
    if words.get("stack", _STACK).lower() != _STACK:
        raise UsageError(f"--recipe {recipe.name} is TRL's {recipe.trainer}: leave --stack {words['stack']} out")
    if "fused-loss" in words:
        raise UsageError(
            f"--fused-loss with --recipe {recipe.name}: TRL 1.16 takes no loss of Liger's, its own goes by tiles of the"
            f" logits: leave it out; --set {LIGER}=true has Liger's layers (use_liger_kernel)"
        )
    peft = words.get("peft", NO_ADAPTERS).lower()
    rank = positive(words.get("lora-rank"), "--lora-rank")
    if peft not in Peft.names():
        raise UsageError(f"--peft {words['peft']!r} is unknown: use {', '.join(Peft.names())}")
    if not Peft(peft).adapts and (rank is not None or "lora-targets" in words):
        raise UsageError("--lora-rank and --lora-targets are about adapters: add --peft lora")
    own = _own_settings(recipe, settings, Peft(peft))
    check_every(choice(Checkpointing, words.get("checkpointing"), "--checkpointing"), tuple(own.items()), None)
    prompt, completion = lengths_of(words)
    generations = _generations(words, recipe)
    batch = positive(words.get("micro-batch"), "--micro-batch") or recipe.least_batch
    if batch < recipe.least_batch:
        raise UsageError(f"--recipe {recipe.name}: {recipe.trainer} takes micro batches from {recipe.least_batch} on")
    return RecipeGiven(
        recipe=recipe,
        prompt_len=prompt,
        completion_len=completion,
        reference=_reference(words.get("reference"), recipe, adapts=Peft(peft).adapts),
        teacher=_teacher(words.get("teacher"), recipe),
        micro_batch=batch,
        grad_accum=positive(words.get("grad-accum"), "--grad-accum") or 1,
        accumulates="grad-accum" in words,
        lora_rank=(rank or 16) if Peft(peft).adapts else None,
        lora_targets=words.get("lora-targets", ""),
        four_bits=Peft(peft).quantises,
        attention=_attention(words.get("attention")),
        generations=generations,
        reward_model=words.get("reward-model"),
        engine=read_engine(words, recipe.name) if recipe.rolls_out else None,
        lora_dropout=float(own.get(DROPOUT, "0")),
        double_quant=own.get(DOUBLE) == "true",
        whole_logits=own.get(LOGITS) == WHOLE,
        liger=own.get(LIGER) == "true",
        reentrant=own.get(REENTRANT) == "true",
        words=tuple((name, value) for name, value in words.items() if name not in _SCRIPTS),
    )


def _own_settings(recipe: Recipe, settings: Sequence[str], peft: Peft) -> dict[str, str]:
    """Those that the recipe's script is told. UsageError for what it cannot be."""
    found = dict(parse_settings(settings))
    if found.get(LIGER) == "true" and recipe.adapts != "CAUSAL_LM":
        raise UsageError(
            f"--set {LIGER} with --recipe {recipe.name}: Liger puts a language model's forward in the place of the"
            " reward model's, which fails: leave it out"
        )
    if recipe.name != "grpo":
        refuse_logits(settings)
    if DROPOUT in found and not peft.adapts:
        raise UsageError(f"--set {DROPOUT} is about adapters: add --peft lora")
    if DOUBLE in found and not peft.quantises:
        raise UsageError(f"--set {DOUBLE} is about a packed base: add --peft qlora")
    base = found.get(BASE)
    if base is not None and base != _PACKED:
        raise UsageError(f"--set {BASE}={base} with --recipe {recipe.name}: its frozen base is {_PACKED} or in 16 bits")
    return {key: value for key, value in found.items() if key in SCRIPT_SETTINGS}


def _recipe(word: str) -> Recipe:
    name = word.lower()
    if name in CALLED:
        raise UsageError(f"--recipe {name}: its memory is that of --recipe {CALLED[name]}, as it is called here")
    if name not in RECIPES:
        known = (*RECIPES, PPO)
        raise UsageError(f"--recipe {word[:40]!r} is unknown: use {', '.join(known)}.{did_you_mean(name, known)}")
    return RECIPES[name]


def _attention(word: str | None) -> str:
    """UsageError for a word that `--attention` has not."""
    if word is None:
        return ""
    name = str(choice(Attention, word.lower(), "--attention"))
    return "flash_attention_2" if name == "flash" else name


def _generations(words: Mapping[str, str], recipe: Recipe) -> int:
    """Completions of a prompt; 1 where nothing is generated."""
    if not recipe.rolls_out:
        for name in (*_ROLLOUTS, "vllm", "vllm-sleep", *ENGINE_WORDS):
            if name in words:
                raise UsageError(f"--recipe {recipe.name} generates nothing: leave --{name} out")
        return 1
    found = positive(words.get("generations"), "--generations") or recipe.generations
    if found < 2:
        raise UsageError("--generations 1: completions of a prompt are compared with each other, so 2 at least")
    return found


def lengths_of(words: Mapping[str, str]) -> tuple[int, int]:
    """Tokens of prompt and completion; UsageError where what is given does not add up."""
    prompt = positive(words.get("prompt-len"), "--prompt-len")
    completion = positive(words.get("completion-len"), "--completion-len")
    whole = positive(words.get("seq-len"), "--seq-len")
    if whole is None:
        prompt, completion = prompt or DEFAULT_LEN, completion or DEFAULT_LEN
    elif prompt is not None and completion is not None:
        if prompt + completion != whole:
            raise UsageError(
                f"--prompt-len {prompt} and --completion-len {completion} are {prompt + completion} tokens, --seq-len"
                f" says {whole}: leave one out"
            )
    else:
        prompt = prompt or (whole - completion if completion is not None else whole // 2)
        completion = whole - prompt
    if prompt < 1 or completion < 2:
        raise UsageError(
            f"a prompt of {prompt} and a completion of {completion} tokens: a prompt has at least 1, a completion 2"
        )
    return prompt, completion


def _reference(word: str | None, recipe: Recipe, *, adapts: bool) -> str | None:
    if not recipe.refers:
        if word is not None:
            raise UsageError(f"--recipe {recipe.name} asks no reference: leave --reference out")
        return None
    usual = ("adapters" if adapts else "kept") if recipe.weighs_reference else "none"
    found = (word or usual).lower()
    if found not in REFERENCES:
        raise UsageError(
            f"--reference {word!r} is unknown: use {', '.join(REFERENCES)}.{did_you_mean(found, REFERENCES)}"
        )
    if found == ("precomputed" if recipe.rolls_out else "none"):
        instead = "its completions are new in every step" if recipe.rolls_out else "its loss compares with one"
        raise UsageError(f"--reference {found}: {recipe.trainer} has no such thing, {instead}")
    if found == "adapters" and not adapts:
        raise UsageError("--reference adapters is the model without its adapters: add --peft lora")
    if found == "kept" and adapts:
        raise UsageError(
            "--reference kept with --peft lora: TRL asks the model without its adapters, and keeps no other; leave"
            " --reference out"
        )
    return found


def _teacher(word: str | None, recipe: Recipe) -> str | None:
    if recipe.taught and word is None:
        raise UsageError(f"--recipe {recipe.name} needs its teacher: add --teacher MODEL")
    if not recipe.taught and word is not None:
        raise UsageError(f"--recipe {recipe.name} has no teacher: leave --teacher out")
    return word
