"""What a run of prompts would be refused for in any case, seen before there is a plan: planning takes minutes (I/O).

No torch. What depends on the plan, such as the room on its devices, is looked at after it: see `preflight`.
"""

from collections.abc import Sequence

from gpu_plan.executor.inference.loading.checkpoint import named_folder, open_checkpoint
from gpu_plan.executor.inference.loading.random_weights import config_folder
from gpu_plan.executor.inference.options import Parser, add_options, read_device_map, request_of
from gpu_plan.executor.inference.prompting.prompts import read_prompts
from gpu_plan.planner.errors import InputError, UnreachableError

_NO_NETWORK_SECONDS = 20


def refuse_early(model: str, revision: str | None, arguments: Sequence[str] | None) -> None:
    """Raises what the run would end with for its words, its prompts and its weights; a PlanError of one line.

    `arguments` None: of a script of the user's own the weights alone are looked at.
    """
    if arguments is None:
        _check_weights(model, revision, hint="")
        return
    parser = Parser(prog="@generate", allow_abbrev=False)
    add_options(parser)
    request = request_of(parser.parse_args(list(arguments)))
    read_prompts(request.prompts)
    if request.device_map is not None:
        read_device_map(request.device_map)
    if not request.output.parent.is_dir():
        raise UnreachableError(f"--output {request.output}: there is no folder {request.output.parent}")
    if request.random_weights:
        config_folder(request.model or model)
    else:
        _check_weights(request.model or model, revision, hint="; -- --random-weights makes some, to try it")


def _check_weights(model: str, revision: str | None, *, hint: str) -> None:
    folder = named_folder(model)
    if folder is not None:
        try:
            open_checkpoint(folder)
        except UnreachableError as problem:
            raise UnreachableError(f"{problem}{hint}") from None
    elif not _is_cached(model, revision):
        _check_hub(model, revision)


def _is_cached(model: str, revision: str | None) -> bool:
    """Whether weights of a hub id lie in the user's cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    from gpu_plan.planner.model.source.headers import INDEX_NAME, SINGLE_NAME

    try:
        found = [try_to_load_from_cache(model, name, revision=revision) for name in (SINGLE_NAME, INDEX_NAME)]
    except HFValidationError:
        raise UnreachableError(
            f"there is no folder {model}, and it is not a hub id: prompts need the weights"
        ) from None
    return any(isinstance(one, str) for one in found)


def _check_hub(model: str, revision: str | None) -> None:
    """UnreachableError or InputError where the hub would not give weights that are loaded."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        files = HfApi().model_info(model, revision=revision, timeout=_NO_NETWORK_SECONDS).siblings or []
    except (HfHubHTTPError, OfflineModeIsEnabled, OSError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise UnreachableError(
            f"the weights of {model} are not on this machine, and the hub cannot be asked: {why}"
        ) from None
    if not any(file.rfilename.endswith(".safetensors") for file in files):
        raise InputError(f"{model} has no safetensors on the hub: pickled weights are not loaded, a pickle runs code")
