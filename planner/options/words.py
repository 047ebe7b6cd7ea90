"""The words of the main job, as argparse reads them: a job's options, what is written, and what is run."""

import argparse
import os
from collections.abc import Iterable, Sequence

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.options.parser import Parser, job_parser

_OPENING = """\
plan: how a PyTorch or Hugging Face job fits on GPUs, the best way, and its run

  plan meta-llama/Llama-3.1-8B --gpus 8xH100          how to train it there
  plan gpt2 --task infer --gpus 1xT4 --context 1024   how to generate with it
  plan --execute train.py --gpus auto -- --lr 3e-4    plan a script and run it

Verbs (`plan help VERB`; a folder named like a verb is written ./check):
{verbs}
Without a verb: plan MODEL --gpus SPEC [options] [-- words for the script]"""
"""Ten lines: what it is, three examples, the verbs."""


def main_parser(verbs: Iterable[str] = (), *, add_help: bool = True) -> Parser:
    """Parser of `plan MODEL --gpus SPEC [options]`; `verbs` are named in its help.

    Without `add_help`, no word prints and leaves: for a command line that was kept, not typed.
    """
    parser = job_parser(_opening(tuple(verbs)), add_help=add_help)
    _add_output(parser.add_argument_group("output"))
    _add_execution(parser.add_argument_group("running"))
    return parser


def _opening(verbs: Sequence[str]) -> str:
    """The help's first ten lines; none where no verbs are named."""
    if not verbs:
        return ""
    ordered = sorted(verbs)
    half = -(-len(ordered) // 2)
    lines = (f"  {'  '.join(part)}" for part in (ordered[:half], ordered[half:]))
    return _OPENING.format(verbs="\n".join(lines))


def join_negative(words: Sequence[str]) -> list[str]:
    """`--gpus -1x` as `--gpus=-1x`: argparse would take the value for an option and hide what is wrong with it."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] == "--gpus" and word[:1] == "-" and word[1:2].isdigit():
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


_MEANT = {
    "--batch-size": "--micro-batch",
    "--per-device-train-batch-size": "--micro-batch",
    "--per_device_train_batch_size": "--micro-batch",
    "-bs": "--micro-batch",
    "-b": "--micro-batch",
    "--bs": "--micro-batch",
    "--lora": "--peft lora",
    "--qlora": "--peft qlora",
    "--fp16": "--precision fp16-mixed",
    "--bf16": "--precision bf16-mixed",
    "--fp8": "--precision fp8-mixed",
    "--load-in-4bit": "--peft qlora, or --task infer --quantize nf4",
    "--load_in_4bit": "--peft qlora, or --task infer --quantize nf4",
    "--4bit": "--peft qlora, or --task infer --quantize nf4",
    "--8bit": "--set quant.base=int8 with --peft qlora, or --task infer --quantize int8",
    "--load-in-8bit": "--set quant.base=int8 with --peft qlora, or --task infer --quantize int8",
    "--load_in_8bit": "--set quant.base=int8 with --peft qlora, or --task infer --quantize int8",
    "--num-gpus": "--gpus 8xH100",
    "--max-length": "--seq-len",
    "--max-seq-length": "--seq-len",
    "--max_seq_length": "--seq-len",
    "--sequence-length": "--seq-len",
    "--seq-length": "--seq-len",
    "--gradient-checkpointing": "--checkpointing full",
    "--gradient_checkpointing": "--checkpointing full",
    "--gradient-accumulation-steps": "--grad-accum",
    "--gradient_accumulation_steps": "--grad-accum",
    "--flash-attention": "--attention flash",
    "--flash-attn": "--attention flash",
    "--flash_attn": "--attention flash",
    "--use-flash-attention": "--attention flash",
    "--full-finetune": "plan MODEL --gpus 8xH100, which trains all weights",
    "--vllm": "--task infer --server vllm",
    "--packing": "--set data.padding=none, which is the default",
    "--optim": "--optimizer",
    "--deepspeed": "--strategy zero2, or zero3",
    "--fsdp": "--strategy fsdp",
    "--zero": "--strategy zero2, or zero3",
    "--inference": "--task infer",
    "--ram": "--host-ram",
    "-g": "--gpus",
    "-n": "--gpus 8xH100",
    "-m": "MODEL as the first word",
    "--seqlen": "--seq-len",
    "--block-size": "--seq-len",
    "--ctx": "--seq-len, or --task infer --context",
    "--max-new-tokens": "--task infer --new-tokens",
    "--dtype": "--precision",
    "--mixed-precision": "--precision",
    "--mixed_precision": "--precision",
    "--zero-stage": "--strategy zero2, or zero3",
    "--zero_stage": "--strategy zero2, or zero3",
    "--cpu-offload": "--offload all",
    "--cpu_offload": "--offload all",
    "--rank": "--lora-rank",
    "--num-train-epochs": "--epochs, with --dataset-tokens",
    "--num_train_epochs": "--epochs, with --dataset-tokens",
    "--vram": "--gpus, as in --gpus 24GB",
    "--gpu-memory": "--gpus, as in --gpus 24GB",
    "--gpu_memory": "--gpus, as in --gpus 24GB",
    "--max-memory": "--gpus, as in --gpus 24GB",
    "--memory": "--gpus, as in --gpus 24GB, or --host-ram",
    "--mem": "--gpus, as in --gpus 24GB, or --host-ram",
    "--gpu-mem": "--gpus, as in --gpus 24GB",
    "--nodes": "--gpus 2x8xH100, which is nodes x GPUs",
    "--num-nodes": "--gpus 2x8xH100, which is nodes x GPUs",
    "--num_nodes": "--gpus 2x8xH100, which is nodes x GPUs",
    "--nnodes": "--gpus 2x8xH100, which is nodes x GPUs",
    "--dataset-size": "--dataset-tokens, which counts tokens",
    "--dataset_size": "--dataset-tokens, which counts tokens",
    "--quantization": "--task infer --quantize, or --peft qlora",
    "--cost": "--tokens, which counts hours and dollars",
    "--train": "--task train, which is the default",
    "--verbose": "--explain",
    "-v": "-V for the version, or --explain",
}
"""What other programs call an option of ours."""
_SIGNS = ("x", "*", "\N{MULTIPLICATION SIGN}")
"""What stands between a count and a GPU."""
_NEITHER = ("--lr", "--learning-rate", "--learning_rate", "--weight-decay", "--weight_decay", "--warmup", "--seed")
"""Options of training scripts that no plan depends on."""


_ACTIONS = {
    "train": "plan MODEL --gpus 8xH100 plans its training, plan train.py --gpus 8xH100 that of a script",
    "finetune": "plan MODEL --gpus 8xH100 plans its training; --peft lora trains adapters",
    "infer": "plan MODEL --task infer --gpus 1xH100",
    "inference": "plan MODEL --task infer --gpus 1xH100",
    "generate": "plan MODEL --task infer --gpus 1xH100",
    "serve": "plan MODEL --task infer --gpus 1xH100",
    "estimate": "plan MODEL --gpus 8xH100; --pin estimates one configuration",
    "memory": "plan MODEL --gpus 8xH100; --pin estimates one configuration",
    "run": "plan --execute train.py --gpus auto",
    "execute": "plan --execute train.py --gpus auto",
    "launch": "plan --execute train.py --gpus auto",
    "list": "plan models, or plan gpus",
}


def no_verb(model: str | None) -> UsageError | None:
    """One line for an action that stands where the model does; None for everything else, and for what lies here."""
    instead = _ACTIONS.get("" if model is None else model.lower())
    if instead is None or os.path.exists(str(model)):
        return None
    return UsageError(f"{model} is no verb of plan, and no model: {instead}")


def unknown_options(parser: argparse.ArgumentParser, words: list[str]) -> UsageError:
    """One line for what argparse did not recognise, with the nearest option."""
    from gpu_plan.planner.nearest import did_you_mean

    first = words[0]
    if first.partition("=")[0] in _NEITHER:
        return UsageError(f"unrecognised argument {first!r}: it changes neither memory nor time: leave it out")
    if not first.startswith("-"):
        if first.lower() in _SIGNS:
            one = "write the cluster in one word, as in --gpus 2xH100"
        else:
            counts = _counts_gpus(first)
            one = f"write --gpus {first}" if counts else "one MODEL is planned, and every option begins with --"
        return UsageError(f"{first!r} is one word too many: {one}")
    known = [string for action in parser._actions for string in action.option_strings]
    meant = _MEANT.get(first.partition("=")[0])
    if meant is not None:
        return UsageError(f"unrecognised argument {first!r}: did you mean {meant}?")
    hint = did_you_mean(first.partition("=")[0], known, limit=1)
    return UsageError(
        f"unrecognised argument {first!r}.{hint}" if hint else f"unrecognised argument {first!r}; see `plan --help`"
    )


def _counts_gpus(word: str) -> bool:
    """Whether a word that stands alone is what --gpus takes: `1xT4`, `2x8xH100`."""
    count, _, name = word.partition("x")
    return count.isdigit() and bool(name)


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--json", action="store_true", help="one JSON document on stdout")
    group.add_argument("--format", choices=("text", "json", "md", "csv", "html"), help="default: text")
    group.add_argument("-o", "--output", metavar="FILE", help="write the report there instead of stdout")
    group.add_argument("--save", metavar="FILE", help="write the chosen plan")
    group.add_argument(
        "--snapshot", metavar="FILE", help="write the predicted memory snapshot, for PyTorch's memory viewer"
    )
    group.add_argument(
        "--timeline", metavar="FILE", help="write the expected step, stream by stream, for Chrome's tracing or Perfetto"
    )
    group.add_argument(
        "--plot",
        metavar="[KIND:]FILE",
        action="append",
        help="draw the timeline of a step (.png, .svg, .pdf; .csv: its events); KIND: breakdown, pareto, scaling,"
        " sequence; of a sweep heatmap, curve",
    )
    group.add_argument(
        "--sweep",
        metavar="OPTION=A,B",
        action="append",
        help="plan every value of an option (also gpus, model, a KEY of --set); repeat it for a grid",
    )
    group.add_argument("--force", action="store_true", help="overwrite existing files")
    group.add_argument("--top", metavar="N", help="how many plans to show")
    group.add_argument("--explain", action="store_true", help="name the largest tensors that stand at the peak")
    group.add_argument(
        "--machines", metavar="A,B", help="machines to compare in place of the catalog's, where there is no --gpus"
    )
    group.add_argument(
        "--max",
        metavar="WHAT",
        dest="largest",
        help="the largest seq-len, micro-batch, lora-rank or model (of its family, of all without MODEL) that fits",
    )
    group.add_argument(
        "--alternatives", action="store_true", help="what else you could do, evaluated, also where a plan fits"
    )
    group.add_argument("--quiet", action="store_true", help="nothing on stderr about what is done and how much is left")
    group.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")
    group.add_argument("--no-cache", action="store_true", help="neither read nor write the cache")


def _add_execution(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--execute",
        metavar="SCRIPT",
        help="run SCRIPT, or @generate for prompts, under the plan; its own arguments follow after --",
    )
    group.add_argument("--plan", metavar="FILE", help="the plan of --save that --execute applies, instead of a new one")
    group.add_argument("--readonly", action="store_true", help="launch nothing: --execute is refused but for --dry-run")
    group.add_argument("--dry-run", action="store_true", help="print the launch files and the command, and stop there")
    group.add_argument(
        "--hosts", metavar="A,B", help="one host per node; ranks meet at the first, host:port if need be"
    )
    group.add_argument(
        "--on",
        metavar="ENGINE",
        help="the engine that gives nodes and runs it there: slurm, ray, kubeflow, skypilot; --set ENGINE.KEY=VALUE",
    )
    group.add_argument("--partition", metavar="P", help="SLURM's queue: --set slurm.partition=P")
    group.add_argument("--time", metavar="T", help="limit of wall time, such as 12:00:00: --set slurm.time=T")
    group.add_argument("--account", metavar="A", help="who pays: --set slurm.account=A")
    group.add_argument("--address", metavar="A", help="Ray's cluster, http://HOST:8265: --set ray.address=A")
    group.add_argument("--namespace", metavar="N", help="of Kubernetes: --set kubeflow.namespace=N")
    group.add_argument("--image", metavar="I", help="container image: --set kubeflow.image=I")
    group.add_argument("--machine-rank", metavar="N", help="which host this is; default: SLURM_NODEID, NODE_RANK, or 0")
    group.add_argument(
        "--allow-deviation",
        action="store_true",
        help="run a script although its batch or clipping is known to differ from the plan's",
    )
    group.add_argument(
        "--stop-on-nan", action="store_true", help="end the run at the first loss that is NaN or infinite"
    )
    group.add_argument("--max-restarts", metavar="N", help="new attempts after a crash or a hang; default: 3")
    group.add_argument(
        "--hang-seconds",
        metavar="N",
        help="seconds without a step after which a run counts as hung, 0: never; default: learnt from the run,"
        " 15 minutes before its first step; or GPU_PLAN_HANG_SECONDS",
    )
    group.add_argument(
        "--leave-running",
        metavar="A,B",
        help="programs that may outlive the run where it starts them; all else ends with it, but for what is started"
        " with GPU_PLAN_DAEMON=1",
    )
