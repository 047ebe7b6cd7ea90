"""Options of the prompt runner, and what they ask for."""

import argparse
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from gpu_plan.executor.inference.job import Place
from gpu_plan.executor.inference.prompting.sampling import Sampling
from gpu_plan.planner.errors import InputError, UnreachableError, UsageError
from gpu_plan.planner.foreign.as_json import json_value
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.foreign.limits import MalformedError

_MAX_MAP = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asks the prompt runner for; None: as the plan says."""

    prompts: Path
    output: Path
    model: str | None = None
    random_weights: bool = False
    """Whether weights are made up for a model of which there is only a config."""
    plan_file: Path | None = None
    device_map: Path | None = None
    batch: int | None = None
    new_tokens: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    ignore_stop: bool = False
    offload_folder: Path | None = None
    force: bool = False
    resume: bool = False


class Parser(argparse.ArgumentParser):
    """argparse whose refusals are UsageErrors of one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What may stand after `--`."""
    parser.add_argument("--prompts", required=True, help="one prompt in each line: text, or .jsonl objects")
    parser.add_argument("--output", required=True, help="results as JSON Lines, in the order of the prompts")
    parser.add_argument("--model", help="the folder of the weights, where it is not the plan's")
    parser.add_argument(
        "--random-weights", action="store_true", help="make weights for a folder that has only a config.json, to try it"
    )
    parser.add_argument("--plan-file", help="a saved plan, for a run that plan does not launch")
    parser.add_argument("--device-map", help="a JSON object from module to GPU number, cpu or disk, not the plan's")
    parser.add_argument("--batch", type=int, help="prompts at once on each replica; default: the plan's")
    parser.add_argument("--new-tokens", type=int, help="at most so many for each prompt; default: the plan's")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest token each time (default)")
    parser.add_argument("--top-k", type=int, default=0, help="sample from so many likeliest tokens; 0: from all")
    parser.add_argument("--top-p", type=float, default=1.0, help="sample from the likeliest that have this share")
    parser.add_argument("--seed", type=int, default=0, help="of the samples; with the prompt's number it settles them")
    parser.add_argument("--ignore-stop", action="store_true", help="go on after a stop token: every prompt gets all")
    parser.add_argument("--offload-folder", help="where weights go that the plan puts on disk; default: the run folder")
    parser.add_argument("--resume", action="store_true", help="go on with what an interrupted run has done")
    parser.add_argument("--force", action="store_true", help="replace the output, begin again")


def request_of(args: argparse.Namespace) -> Request:
    """The parsed options, checked. UsageError in one line."""
    if args.force and args.resume:
        raise UsageError("--force begins again and --resume goes on: leave one out")
    for option in ("batch", "new_tokens"):
        value = getattr(args, option)
        if value is not None and not 0 < value < 2**24:
            raise UsageError(f"--{option.replace('_', '-')} {value} is not a positive number")
    if not (math.isfinite(args.temperature) and args.temperature >= 0):
        raise UsageError(f"--temperature {args.temperature} is not a number of 0 or more")
    if not 0 < args.top_p <= 1 or args.top_k < 0:
        raise UsageError("--top-p is above 0 and at most 1, --top-k is 0 or more")
    if args.temperature == 0 and (args.top_k or args.top_p < 1):
        raise UsageError("--top-k and --top-p sample: give a --temperature above 0")
    return Request(
        prompts=Path(args.prompts).absolute(),
        output=Path(args.output).absolute(),
        model=args.model,
        random_weights=args.random_weights,
        plan_file=_path(args.plan_file),
        device_map=_path(args.device_map),
        batch=args.batch,
        new_tokens=args.new_tokens,
        sampling=Sampling(temperature=args.temperature, top_k=args.top_k, top_p=args.top_p, seed=args.seed),
        ignore_stop=args.ignore_stop,
        offload_folder=_path(args.offload_folder),
        force=args.force,
        resume=args.resume,
    )


def read_device_map(path: Path) -> dict[str, Place]:
    """The map in a file. UnreachableError where it cannot be read, InputError where it is none."""
    try:
        value = json_value(read_bytes(path, _MAX_MAP))
    except OSError as error:
        raise UnreachableError(f"{path} cannot be read: {error.strerror or error}") from None
    except MalformedError as error:
        raise InputError(f"{path} {error}") from None
    if not isinstance(value, dict) or not value:
        raise InputError(f'{path} is not a device map: write {{"model.layers.0": 0, "lm_head": "cpu"}}')
    for name, place in value.items():
        if isinstance(place, bool) or not isinstance(place, (int, str)):
            raise InputError(f"{path} puts {name} on {str(place)[:40]}: a GPU's number, cpu or disk")
    return value


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text).absolute()
