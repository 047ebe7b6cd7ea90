"""A job by named values as one JSON document: how another process is asked, over its stdin. Pure."""

import json
from collections.abc import Mapping, Sequence

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.options.given.named import Named, named

_KEYS = {"model", "gpus", "options", "settings", "arguments"}


def asked_to_json(job: Named, arguments: Sequence[str] = ()) -> str:
    """The job, and the arguments of the training script that its model is."""
    document = {
        "model": job.model,
        "gpus": job.gpus,
        "options": dict(job.options),
        "settings": dict(job.settings),
        "arguments": list(arguments),
    }
    return json.dumps(document)


def asked_from_json(text: str | bytes) -> tuple[Named, tuple[str, ...]]:
    """What `asked_to_json` wrote, checked anew. InputError in one line for anything else."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("what is asked is no JSON document") from None
    if not isinstance(document, dict) or set(document) != _KEYS:
        raise InputError(f"what is asked must be an object with {', '.join(sorted(_KEYS))}")
    options, arguments = document["options"], document["arguments"]
    if not isinstance(options, Mapping) or {"model", "gpus", "set"} & set(options):
        raise InputError("options of what is asked must be an object of the job's options")
    if not isinstance(arguments, list) or not all(isinstance(word, str) for word in arguments):
        raise InputError("arguments of what is asked must be a list of strings")
    job = named({**options, "model": document["model"], "gpus": document["gpus"], "set": document["settings"]})
    return job, tuple(arguments)
