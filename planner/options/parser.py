"""The options that describe a job, as argparse reads them; words of the fixed machine interface."""

import argparse
import os
import sys
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from gpu_plan.planner.errors import NotBuiltError, UsageError

_JOB_GROUPS = (
    "job",
    "several models",
    "batch",
    "inference",
    "serving",
    "adapters",
    "spreading over GPUs",
    "what is wanted",
)
STACKS = (
    "who runs the loop, hence what is held when and in which type: accelerate, trainer, trl, peft, axolotl,"
    " llama-factory, unsloth, torchtune, litgpt, torchtitan, plain"
)
GPUS_HELP = "8xH100, 2x8xA100-80GB, 2xT4, cpu, 2xcpu, auto, colab-t4, ..."
_RUN_OPTIONS = ("hosts", "max-restarts")
COMPILED = {"compile.backend": "inductor"}
"""The setting for which `--compile` is short."""


def _formatter(prog: str) -> argparse.HelpFormatter:
    """argparse's own, as wide as it would find out by importing shutil and with it three compressors."""
    columns = os.environ.get("COLUMNS", "")
    try:
        width = int(columns) if columns.isdigit() else 0
        width = width or os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns
    except (OSError, ValueError):
        width = 0
    return argparse.HelpFormatter(prog, width=(width or 80) - 2)


class Parser(argparse.ArgumentParser):
    """Raises UsageError instead of printing usage and leaving, and for an option that is given twice.

    Options that gather values may come several times; of the others argparse would keep the last, and say nothing.
    """

    def __init__(self, *, opening: str = "", **given: Any) -> None:
        super().__init__(**{"formatter_class": _formatter, **given})
        self._opening = opening
        """What the help begins with, in place of argparse's list of all options."""
        self._seen: dict[str, str] = {}
        """Options of the command line that is being read, by where their value goes."""

    def format_help(self) -> str:
        text = super().format_help()
        if not self._opening:
            return text
        return f"{self._opening}\n\n{text.partition(chr(10) * 2)[2]}"

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._seen = {}
        found, rest = super().parse_known_args(args, namespace)
        if getattr(found, "compile", None) is not None:
            settle_compilation(found)
        return found, rest

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # Every occurrence of an option comes through here.
        if action.option_strings and not isinstance(action, argparse._AppendAction):
            option = action.option_strings[-1]
            before = self._seen.get(action.dest)
            if before is not None:
                raise UsageError(
                    f"{option} is given twice: keep one"
                    if before == option
                    else f"{before} and {option} contradict each other: keep one"
                )
            self._seen[action.dest] = option
        return super()._get_values(action, arg_strings)

    def _match_argument(self, action: argparse.Action, arg_strings_pattern: str) -> int:
        # Python says `expected one argument`, and leaves open which there are.
        try:
            return super()._match_argument(action, arg_strings_pattern)
        except argparse.ArgumentError:
            if not action.option_strings or action.nargs is not None:
                raise
            if action.choices:
                values = ", ".join(map(str, action.choices))
            else:
                values = "" if action.help in (None, argparse.SUPPRESS) else self._get_formatter()._expand_help(action)
            told = f": {' '.join(values.split())}" if values else ""
            raise UsageError(f"{action.option_strings[-1]} needs a value{told}") from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # As other options say it, with what was probably meant.
        if action.choices is None or value in action.choices or not action.option_strings:
            return super()._check_value(action, value)
        from gpu_plan.planner.nearest import did_you_mean

        known = [str(choice) for choice in action.choices]
        hint = did_you_mean(str(value), known, limit=1)
        raise UsageError(f"{action.option_strings[-1]} {value[:40]!r} is unknown: use {', '.join(known)}.{hint}")


def settle_compilation(args: argparse.Namespace) -> None:
    """`--compile` as the setting that it is short for; a backend that is named overrules it.

    UsageError for a backend beside `--no-compile`.
    """
    keys = {word.partition("=")[0] for word in args.settings}
    if args.compile == "true":
        args.settings = [*args.settings, *(f"{key}={value}" for key, value in COMPILED.items() if key not in keys)]
    elif keys & set(COMPILED):
        raise UsageError(f"--no-compile and --set {next(iter(COMPILED))} contradict each other: keep one")


def job_parser(opening: str = "", *, add_help: bool = True) -> Parser:
    """Parser of `MODEL --gpus SPEC` and the options that describe a job; its help begins with `opening`."""
    parser = Parser(prog="plan", allow_abbrev=False, opening=opening, add_help=add_help)
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="hub id, folder, config.json, package.module:factory, a training script (train.py [-- ARGS]), or a"
        " document of several models (JOB.toml)",
    )
    parser.add_argument(
        "--model",
        metavar="MODEL",
        dest="named_model",
        help="plan this model instead of what the script trains, and list where the two differ",
    )
    parser.add_argument("--gpus", metavar="SPEC", help=GPUS_HELP)
    parser.add_argument("-V", "--version", action="store_true", help="print the version and exit")
    add_unwalled(parser)
    add_job_options(parser)
    _add_later(parser)
    return parser


def add_unwalled(parser: argparse._ActionsContainer) -> None:
    """`--unwalled`: of the command line alone. No file of a project can say it."""
    parser.add_argument(
        "--unwalled",
        action="store_true",
        help="execute a script or factory where this machine offers no walls around it, with your rights",
    )


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Options of the main job that describe it, for verbs that take the same."""
    adds = (_add_job, _add_recipe, _add_batch, _add_inference, _add_serving, _add_adapters, _add_spread, _add_wishes)
    for title, add in zip(_JOB_GROUPS, adds, strict=True):
        add(parser.add_argument_group(title))


def given_job_words(args: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    """Name without dashes and value of every job option that was given."""
    names = (
        "recipe", "prompt_len", "completion_len", "reference", "teacher", "generations", "reward_model", "critic",
        "vllm",
        "vllm_sleep",
        "precision", "optimizer", "checkpointing", "attention", "stack", "strategy", "offload",
        "dp_replicate", "seq_len", "micro_batch", "global_batch", "grad_accum", "peft", "lora_rank", "lora_targets",
        "fused_loss", "context", "batch", "new_tokens", "kv_dtype", "quantize", "server", "concurrency",
        "gpu_memory_utilization", "vllm_tp", "max_num_seqs", "max_num_batched_tokens", "enforce_eager",
        "tp", "ep", "cp", "pp", "schedule", "vpp",
        "prefer", "host_ram", "host_nvme", "price", "tokens", "dataset_tokens", "epochs", "budget", "deadline",
    )  # fmt: skip
    given = ((name.replace("_", "-"), getattr(args, name)) for name in names)
    task = (("task", "infer"),) if args.task == "infer" else ()
    return (*task, *((name, value) for name, value in given if value is not None))


def job_option_names() -> tuple[str, ...]:
    """Names without dashes of the options that describe a job: what a configuration file may give."""
    groups = (group for group in job_parser()._action_groups if group.title in _JOB_GROUPS)
    # The first of an option's spellings is its name.
    strings = (action.option_strings[0] for group in groups for action in group._group_actions)
    names = (string.removeprefix("--") for string in strings if not string.startswith("--no-"))
    return (*(name for name in names if name != "set"), *_RUN_OPTIONS)


class _Words(str):
    """Words of a help that are put together when it is printed: what they are about takes time to import."""

    module: str
    function: str

    def strip(self, letters: str | None = None, /) -> str:
        return str(self % {}).strip(letters)

    def __mod__(self, params: Any, /) -> str:
        words = getattr(import_module(f"gpu_plan.planner.workload.{self.module}"), self.function)()
        return str(words % params)


def _words(module: str, function: str) -> str:
    made = _Words(function)
    made.module, made.function = module, function
    return made


def _add_job(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--task", choices=("train", "infer"), help="default: train")
    group.add_argument("--precision", metavar="P", help=_words("precisions", "precision_help"))
    group.add_argument(
        "--optimizer",
        metavar="O",
        help=_words("optimizers.registry", "optimizer_help"),
    )
    group.add_argument("--checkpointing", metavar="C", help="none, selective, full")
    group.add_argument("--attention", metavar="A", help="eager, sdpa, flash")
    group.add_argument(
        "--fused-loss",
        action="store_const",
        const="true",
        dest="fused_loss",
        help="Liger's fused linear cross entropy: no logits; --set kernels.liger=true adds its other kernels",
    )
    group.add_argument(
        "--no-fused-loss", action="store_const", const="false", dest="fused_loss", help=argparse.SUPPRESS
    )
    group.add_argument("--stack", metavar="S", help=STACKS)
    group.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="a finer setting; a wrong KEY lists all",
    )
    group.add_argument(
        "--compile",
        action="store_const",
        const="true",
        dest="compile",
        help="torch.compile with inductor, as Accelerate calls it: --set compile.backend=inductor",
    )
    group.add_argument("--no-compile", action="store_const", const="false", dest="compile", help=argparse.SUPPRESS)
    group.add_argument(
        "--script-seconds",
        metavar="N",
        help="processor time that a training script may take to its first step while it is planned; default: 180",
    )
    group.add_argument(
        "--data",
        choices=("standin",),
        help="standin: a small stand-in for each data set and tokenizer that a training script does not find, named"
        " among the assumptions",
    )
    group.add_argument("--trust-remote-code", action="store_true", help="allow code from the model's repository")
    group.add_argument("--revision", metavar="REV", help="branch, tag or commit on the hub")


def _add_recipe(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--recipe", metavar="R", help=_words("recipes", "recipe_help"))
    group.add_argument("--prompt-len", metavar="N", help="tokens of each prompt; default: 512")
    group.add_argument("--completion-len", metavar="N", help="tokens of each completion; default: 512")
    group.add_argument(
        "--reference",
        metavar="R",
        help="none, kept (a second model), adapters (the model without them), precomputed (before the first step)",
    )
    group.add_argument("--teacher", metavar="MODEL", help="the frozen model that --recipe distill learns from")
    group.add_argument("--generations", metavar="N", help="completions of each prompt: grpo (default: 8), rloo (2)")
    group.add_argument("--reward-model", metavar="MODEL", help="a frozen model that rewards completions; default: code")
    group.add_argument("--critic", metavar="C", help="ppo: own (a second model), shared (a head on the policy's trunk)")
    group.add_argument(
        "--vllm", metavar="MODE", help="colocate (vLLM on the GPUs that train), server (on some of its own)"
    )
    group.add_argument(
        "--vllm-sleep",
        action="store_const",
        const="true",
        dest="vllm_sleep",
        help="vLLM's weights and cache go meanwhile; default: where an update has no room else",
    )
    group.add_argument(
        "--no-vllm-sleep", action="store_const", const="false", dest="vllm_sleep", help=argparse.SUPPRESS
    )


def _add_batch(group: argparse._ArgumentGroup) -> None:
    for name, words in (
        ("--seq-len", "tokens per sample"),
        ("--micro-batch", "samples per forward pass and rank"),
        ("--global-batch", "samples per optimizer step, all ranks together"),
        ("--grad-accum", "micro steps per optimizer step"),
    ):
        group.add_argument(name, metavar="N", help=words)


def _add_inference(group: argparse._ArgumentGroup) -> None:
    for name, metavar, words in (
        ("--context", "N", "prompt plus new tokens of one sample"),
        ("--batch", "N", "samples that one replica generates together; default: 1"),
        ("--new-tokens", "N", "tokens generated for each sample; default: 1"),
        ("--kv-dtype", "T", "auto (the computation's), fp8 (transformers' quantised cache)"),
        (
            "--quantize",
            "Q",
            "none, int8, nf4, nf4-dq, gptq-4bit-128, awq-4bit-128, fp8, mxfp4, torchao-int4, gguf:FILE",
        ),
    ):
        group.add_argument(name, metavar=metavar, help=words)


def _add_serving(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--server", metavar="S", help="vllm or sglang: what its own rules reserve, what it holds")
    group.add_argument("--concurrency", metavar="N", help="requests of full context to be held at once; default: 1")
    group.add_argument(
        "--gpu-memory-utilization",
        "--vllm-memory",
        metavar="SHARE",
        help="share of each GPU for a server; default: 0.92 (sglang: its own); beside a trainer 0.3, its server 0.9",
    )
    group.add_argument("--vllm-tp", metavar="N", help="GPUs that hold one copy of the server; searched unless given")
    group.add_argument("--max-num-seqs", metavar="N", help="sequences that a server computes at once; default: its own")
    group.add_argument(
        "--max-num-batched-tokens", metavar="N", help="tokens that a server computes at once; default: its own"
    )
    group.add_argument(
        "--enforce-eager", action="store_const", const="true", dest="enforce_eager", help="no CUDA graphs in a server"
    )


def _add_adapters(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--peft", metavar="P", help=_words("adapters", "adapter_help"))
    group.add_argument("--lora-rank", metavar="N", help="default: 16")
    group.add_argument(
        "--lora-targets", metavar="A,B", help="modules to adapt, or all-linear; default: peft's own for the model type"
    )


def _add_spread(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--strategy",
        metavar="S",
        help="auto, single, ddp, fsdp (FSDP2), fsdp1, hsdp, zero1, zero2, zero3, tp, fsdp_tp, hsdp_tp, fsdp_ep,"
        " hsdp_ep, pp, ddp_pp, tp_pp, fsdp_pp, fsdp_tp_pp, megatron; inference:"
        " single, replicas, tp, pp, device-map",
    )
    group.add_argument(
        "--dp-replicate", metavar="N", help="replicas of the sharded model under hsdp; default: one on each node"
    )
    group.add_argument("--tp", metavar="N", help="ranks that compute one copy of the model together (tensor parallel)")
    group.add_argument("--ep", metavar="N", help="ranks that hold whole experts each and swap tokens (expert parallel)")
    group.add_argument(
        "--cp",
        metavar="N",
        help="ranks that share the tokens of every sample (context parallel): a ring under FSDP2, Ulysses under ZeRO",
    )
    group.add_argument("--pp", metavar="N", help="ranks that hold stages of one copy of the model (pipeline parallel)")
    group.add_argument(
        "--schedule",
        metavar="S",
        help="order in which micro batches go through a pipeline: gpipe, 1f1b (default), interleaved, zero-bubble",
    )
    group.add_argument(
        "--vpp", "--virtual-stages", metavar="N", dest="vpp", help="stages on each rank of an interleaved pipeline"
    )
    group.add_argument(
        "--offload",
        metavar="O",
        help="none, optimizer (ZeRO), all (ZeRO-3, FSDP2, HSDP; inference: CPU, then disk), nvme (ZeRO-3)",
    )
    group.add_argument("--pin", action="store_true", help="search nothing: options not given take their neutral value")


def _add_wishes(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--prefer",
        metavar="P",
        help="what ranks first: balance (default: simple and roomy among equally fast), speed, memory, cost, simple",
    )
    group.add_argument("--host-ram", metavar="SIZE", help="RAM of each node, such as 256GiB, where it is not known")
    group.add_argument(
        "--host-nvme", metavar="SIZE", help="free disk of each node, such as 1TB, where --offload nvme may need it"
    )
    group.add_argument("--price", metavar="USD", help="dollars for one GPU and hour, in place of published prices")
    group.add_argument("--tokens", metavar="N", help="tokens of the whole job, such as 15T: hours and cost of it")
    group.add_argument("--dataset-tokens", metavar="N", help="tokens that one pass over the data reads, such as 1.2B")
    group.add_argument("--epochs", metavar="N", help="passes over the data")
    group.add_argument(
        "--budget",
        metavar="USD",
        help="at most so many dollars for the whole job, when machines are compared (no --gpus)",
    )
    group.add_argument(
        "--deadline",
        metavar="SPAN",
        help="at most so long for the whole job, such as 12h, 3d or 2w, when machines are compared (no --gpus)",
    )


class _Later(NamedTuple):
    """An option of the interface that is not built yet; a named tuple because `--help` must start at once."""

    name: str
    takes_value: bool = True
    why: str = ""
    """What is in its way, and what to do; empty where nothing is but time."""


_LATER = (
    _Later(
        "--sp",
        # transformers 5.23, distributed/configuration_utils.py: DistributedConfig ("Not wired up yet."); no class's
        # base_model_tp_plan has the style `sequence_parallel`.
        why="sequence parallel is no degree of its own: leave it out. transformers has it reserved and not wired up"
        " (DistributedConfig.enable_sequence_parallel); --stack torchtitan and --strategy megatron have it with --tp;"
        " --cp splits sequences over ranks",
    ),
    _Later(
        "--etp",
        why="ranks that hold one expert together are Megatron-core's: --strategy megatron with --set"
        " megatron.expert_tensor=N; elsewhere --ep gives ranks whole experts",
    ),
)


def _add_later(parser: argparse.ArgumentParser) -> None:
    for option in _LATER:
        if option.takes_value:
            parser.add_argument(option.name, dest=_dest(option), help=argparse.SUPPRESS)
        else:
            parser.add_argument(option.name, dest=_dest(option), action="store_true", help=argparse.SUPPRESS)


def _dest(option: _Later) -> str:
    return "later_" + option.name.strip("-").replace("-", "_")


_NEUTRAL = {"--sp": "1", "--etp": "1"}


def refuse_what_is_not_built(args: argparse.Namespace) -> None:
    """NotBuiltError for a known option that this version lacks; its neutral value is accepted."""
    for option in _LATER:
        value = getattr(args, _dest(option))
        if value not in (None, False) and value != _NEUTRAL.get(option.name):
            shown = option.name if value is True else f"{option.name} {value}"
            if option.why:
                raise UsageError(f"{shown}: {option.why}")
            raise NotBuiltError(shown)
