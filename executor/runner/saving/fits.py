"""Whether what a script loads was saved for what now runs: asked before libraries fail on it in words of their own.

The launching process looks at paths among a script's words. A script may also find one by itself, as the Trainer does
for `resume_from_checkpoint=True`; that is seen here alone.
"""

from pathlib import Path
from typing import Any

from gpu_plan.executor.checkpoints.manifest import (
    DEEPSPEED,
    DEEPSPEED_UNIVERSAL,
    REPLICATED,
    SPREAD,
    Manifest,
    ManifestError,
    read_manifest,
)
from gpu_plan.executor.runner.stop import Stop


class CheckpointMismatch(Stop):
    """The checkpoint is of another layout than what runs. Ends the rank with exit code 4."""

    exit_code = 4


def check_fits(folder: Any, *, layout: str, strategy: str | None, world_size: int) -> None:
    """Raises CheckpointMismatch where the checkpoint in `folder` must be converted first.

    `strategy`: None where the launching process has not said what it calls this one. What has no manifest is left to
    the library.
    """
    try:
        manifest = read_manifest(Path(folder))
    except (ManifestError, TypeError, ValueError):
        return
    if fits(manifest, layout=layout, strategy=strategy, world_size=world_size):
        return
    to = strategy or "STRATEGY"
    raise CheckpointMismatch(
        f"{folder} was saved under {manifest.strategy} on {manifest.world_size} ranks and is not read under"
        f" {strategy or layout} on {world_size}: convert it first,"
        f" `plan convert {folder} --to {to} --ranks {world_size}`"
    )


def fits(manifest: Manifest, *, layout: str, strategy: str | None, world_size: int) -> bool:
    """Whether the library can load it as it stands, as far as the layout tells."""
    if layout != DEEPSPEED or manifest.layout != DEEPSPEED:
        read_too = ((DEEPSPEED_UNIVERSAL, DEEPSPEED), (SPREAD, REPLICATED))
        return manifest.layout == layout or (manifest.layout, layout) in read_too
    # Partitions of the optimizer are those of one stage on one number of ranks.
    return manifest.world_size == world_size and strategy in (None, manifest.strategy)
