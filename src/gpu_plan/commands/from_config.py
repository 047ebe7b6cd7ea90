"""`plan from-config FILE [MODEL]`: another tool's configuration as the options of `plan`, with what it leaves out."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.notes import say
from gpu_plan.planner.errors import ExitCode, InputError, UnreachableError, UsageError
from gpu_plan.planner.foreign.as_json import json_value
from gpu_plan.planner.foreign.as_toml import toml_table
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.foreign.limits import MalformedError
from gpu_plan.planner.visible import visible

if TYPE_CHECKING:
    from gpu_plan.planner.from_config.convert import Converted
    from gpu_plan.planner.from_config.documents.written import Written
    from gpu_plan.planner.from_config.reading import Fetch
    from gpu_plan.planner.from_config.shell.launched import Launched

_MAX_BYTES = 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plan from-config`."""
    parser.add_argument(
        "file", metavar="FILE", help="YAML, JSON or TOML of Accelerate, DeepSpeed, the Trainer, axolotl, torchtune, ..."
    )
    parser.add_argument("model", metavar="MODEL", nargs="?", help="the model, where the file names none")
    parser.add_argument("--gpus", metavar="SPEC", help="8xH100; a type alone, H100, takes the file's own count")
    parser.add_argument(
        "--kind",
        metavar="K",
        help="one of accelerate, deepspeed, trainer, axolotl, llamafactory, llamafactory-v1, ms-swift, unsloth,"
        " open-instruct, torchtune, torchtitan, litgpt; default: by its keys",
    )
    parser.add_argument("--config", metavar="NAME", help="which configuration of a Python file (torchtitan's registry)")
    parser.add_argument("--plan", action="store_true", help="run the main job, pinned on what the file says")
    parser.add_argument("--toml", action="store_true", help="the [tool.plan] table for pyproject.toml, and only that")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of stdout")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def run(args: argparse.Namespace) -> int:
    """Reads, converts, shows; with --plan the main job's own output and exit code."""
    from gpu_plan.planner.from_config.convert import convert
    from gpu_plan.planner.from_config.show import document, text, toml
    from gpu_plan.reports.clean import one_line

    if args.json and args.toml:
        raise UsageError("--json and --toml contradict each other")
    path = Path(args.file)
    content, job, launched = _read(path, args)
    if job is not None:
        return _write_job(args, job)
    world = _world(args.gpus) or getattr(args, "processes", None)
    converted = convert(
        content,
        args.file,
        fetcher(path),
        kind=args.kind,
        world=world,
        otherwise=1 if args.gpus else None,
        launched=launched,
    )
    converted = _with_gpus(_with_model(converted, args.model), args.gpus)
    _check(converted)
    if args.plan:
        return _plan(args, converted)
    if args.json:
        shown = json.dumps(document(converted), indent=2) + "\n"
    else:
        shown = toml(converted) if args.toml else text(converted, one_line)
    if args.toml:
        _say_rest(converted)
    _write(args, shown)
    return ExitCode.OK


def _read(path: Path, args: argparse.Namespace) -> "tuple[Mapping[str, object], Written | None, Launched | None]":
    """The file's table, or the job of several models that it starts; of a script that it starts the command."""
    from gpu_plan.planner.from_config.documents.find import of_script, of_table
    from gpu_plan.planner.from_config.shell.launched import launched_of
    from gpu_plan.planner.from_config.shell.lines import line_of

    if path.suffix == ".sh":
        text = _bytes(path).decode("utf-8-sig", errors="replace")
        job = of_script(text, args.file, args.model, fetcher(path))
        if job is not None:
            return {}, job, None
        line = line_of(text, args.file)
        if line is not None:
            args.kind, args.processes = args.kind or line.kind, line.processes
            return line.content, None, None
        launched = launched_of(text, args.file, fetcher(path), args.model)
        if launched is not None:
            args.kind = args.kind or "trainer"
            return launched.content, None, launched
    content = read_file(path, args.config)
    return content, None if args.kind else of_table(content, args.file, args.model), None


def _write_job(args: argparse.Namespace, job: "Written") -> int:
    """A job document, or what it says as JSON."""
    if args.toml or args.plan:
        word = "--toml" if args.toml else "--plan"
        raise UsageError(
            f"{word}: {args.file} is a job of several models: write it with -o JOB.toml, then"
            f" {job.command('JOB.toml', _type_of(args.gpus))}"
        )
    if job.gpus is None:
        job = replace(job, gpus=_world(args.gpus))
    if args.json:
        said = {"schema_version": 1, "file": args.file, "kind": "job", "tool": job.tool, "job": job.table()}
        rest = {"gpus": job.gpus, "global_batch": job.global_batch, "notes": job.notes, "not_read": job.not_read}
        _write(args, json.dumps({**said, **rest}, indent=2) + "\n")
        return ExitCode.OK
    _write(args, job.toml(_type_of(args.gpus)))
    if args.output is not None:
        say(f"next: {job.command(args.output, _type_of(args.gpus))}")
        for note in job.notes:
            say(f"planned otherwise: {note}")
    return ExitCode.OK


def _type_of(spec: str | None) -> str | None:
    """The type of GPU that --gpus names, with or without a count."""
    return spec if spec is None or _type_alone(spec) else spec.rpartition("x")[2]


def _bytes(path: Path) -> bytes:
    """A file that may be a configuration. UnreachableError for none, InputError for one too large."""
    try:
        raw = read_bytes(path, _MAX_BYTES + 1)
    except OSError as error:
        raise UnreachableError(f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > _MAX_BYTES:
        raise InputError(f"{path} is larger than 1 MiB: it cannot be a configuration")
    return raw


def read_file(path: Path, name: str | None = None) -> Mapping[str, object]:
    """The top-level table of a YAML, JSON or TOML file.

    Of a Python file that of its configuration `name`, read as text. UnreachableError where there is none, InputError
    for what is no table.
    """
    from gpu_plan.planner.from_config.formats.loops.torchtitan_registry import registry_table

    raw = _bytes(path)
    try:
        if name is not None and path.suffix != ".py":
            raise UsageError(f"--config {name}: {path} is not a Python file of several configurations")
        if path.suffix == ".sh":
            from gpu_plan.planner.from_config.unread import command_line

            raise InputError(command_line(raw.decode("utf-8-sig"), str(path)))
        if path.suffix == ".toml":
            content: object = toml_table(raw)
        elif path.suffix == ".py":
            content = registry_table(raw.decode("utf-8-sig"), name, str(path))
        else:
            content = _parsed(raw.decode("utf-8-sig"), path)
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text: name a YAML, JSON or TOML file") from None
    except MalformedError as error:
        raise InputError(f"{path} {error}") from None
    if not isinstance(content, Mapping):
        raise InputError(f"{path} holds no keys: a configuration is a table of them")
    return {str(key): value for key, value in content.items()}


def _parsed(text: str, path: Path) -> object:
    """JSON is read as such: YAML would take its `1e8` for a word."""
    from gpu_plan.planner.foreign.as_yaml import yaml_value

    if path.suffix == ".json" or text.lstrip().startswith("{"):
        try:
            return json_value(text)
        except MalformedError:
            if path.suffix == ".json":
                raise
    return yaml_value(text)


def fetcher(path: Path) -> "Fetch":
    """Reads a file that `path` names: from the working directory, as the tool itself would, or seen from its folder."""

    def fetch(named: str, key: str) -> Mapping[str, object]:
        tried = [Path(os.path.expanduser(named))]
        # As it is seen from its own folder, or from one above it, such as that of the repository it lies in.
        tried += [] if tried[0].is_absolute() else [folder / named for folder in path.absolute().parents]
        for candidate in tried:
            if os.path.isfile(candidate):  # no error for a name that no file can have
                return read_file(candidate)
        raise UnreachableError(
            f"{path}: {key} names {visible(named[:200])}, which is not there: it says how the model is spread"
        )

    return fetch


def _world(spec: str | None) -> int | None:
    """Processes that --gpus names; None for a type without a count, whose count is the file's."""
    if spec is None or _type_alone(spec):
        return None
    from gpu_plan.planner.options.cluster import find_cluster

    return find_cluster(spec).world_size


def _type_alone(spec: str) -> bool:
    """Whether --gpus names a GPU and no count: neither digits before an `x`, nor a platform, nor what is detected."""
    from gpu_plan.planner.hardware.machines import load_platforms

    lowered = spec.strip().lower()
    head = lowered.partition("x")[0].strip()
    return not head.isdigit() and lowered != "auto" and lowered not in load_platforms()


def _with_model(converted: "Converted", model: str | None) -> "Converted":
    """MODEL of the command line stands before the file's."""
    if model is None:
        return converted
    note = () if converted.model in (None, model) else (f"the file's own model is {converted.model}",)
    return replace(converted, model=model, notes=(*converted.notes, *note))


def _with_gpus(converted: "Converted", spec: str | None) -> "Converted":
    """--gpus with the file's count where it names a type alone; where both name one, the command line counts."""
    from gpu_plan.planner.options.cluster import find_cluster

    if spec is None:
        return converted
    if not _type_alone(spec):
        cluster = find_cluster(spec)
        note: tuple[str, ...] = ()
        if converted.processes not in (None, cluster.world_size):
            note = (f"the file says {converted.processes} processes, and --gpus {spec} is {cluster.world_size}",)
        return replace(converted, gpus=spec, notes=(*converted.notes, *note))
    count, nodes = converted.processes or 1, converted.nodes or 1
    whole = f"{nodes}x{count // nodes}x{spec}" if nodes > 1 else f"{count}x{spec}"
    try:
        return replace(converted, gpus=find_cluster(whole).spec)
    except InputError as error:
        raise InputError(
            f"{converted.path} has {count} processes: {error}" if converted.processes else str(error)
        ) from None


def _check(converted: "Converted") -> None:
    """What the options themselves refuse, such as offload that is not built, with the file's name before it."""
    from gpu_plan.planner.from_config.show import values
    from gpu_plan.planner.options.given.named import named, namespace
    from gpu_plan.planner.options.parser import given_job_words, refuse_what_is_not_built
    from gpu_plan.planner.options.training.reading import read_given

    try:
        args = namespace(named(values(converted)))
        refuse_what_is_not_built(args)
        read_given(dict(given_job_words(args)), tuple(args.settings))
    except (UsageError, InputError) as error:
        raise InputError(f"{converted.path}: {error}") from None


def _plan(args: argparse.Namespace, converted: "Converted") -> int:
    """The main job on what was read."""
    from gpu_plan.commands.plan import run_parsed
    from gpu_plan.planner.from_config.show import values
    from gpu_plan.planner.options.given.named import named, namespace, shown_words

    if converted.model is None:
        raise UsageError(f"which model? {args.file} names none: plan from-config {args.file} MODEL --gpus ... --plan")
    if converted.gpus is None:
        raise UsageError(f"which GPUs? no file says: add --gpus, such as --gpus H100, to {args.file}'s count")
    _say_rest(converted)
    job = named({**values(converted), "pin": True})
    asked = namespace(job)
    asked.json, asked.force, asked.output = args.json, args.force, args.output
    return run_parsed(asked, shown_words(job), [])


def _say_rest(converted: "Converted") -> None:
    """What the options do not hold, on stderr."""

    lines = [*(f"planned otherwise: {line}" for line in converted.approximated), *converted.notes]
    if converted.not_understood:
        lines.append(f"not understood: {', '.join(converted.not_understood)}")
    for line in lines:
        say(line)


def _write(args: argparse.Namespace, shown: str) -> None:
    if args.output is None:
        sys.stdout.write(shown)
        return
    from gpu_plan.planner.plan.files import write_text

    if os.path.exists(args.output) and not args.force:
        raise UsageError(f"-o {args.output} exists: add --force to overwrite it")
    write_text(args.output, shown, force=args.force)
