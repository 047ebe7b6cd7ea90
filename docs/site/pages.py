"""Pages that are made from the code: options, settings, GPUs, mirrored sources, what is not built, messages."""

from collections.abc import Callable, Mapping

from docs.site.messages import messages_page
from docs.site.options import options_page
from gpu_plan.planner.hardware.catalog import load_gpus
from gpu_plan.planner.options.settings import settings_table
from gpu_plan.planner.upstream.table import held, held_versions

Page = Callable[[], str]


def settings_page() -> str:
    """Every key of `--set`."""
    return (
        "# Settings\n\n"
        "`--set KEY=VALUE` takes these keys, and may be repeated; in `plan.toml` they stand in the table `set`. A\n"
        "wrong key lists all of them.\n\n"
        f"{settings_table()}\n\n"
        "`alloc.*` go into the simulated allocator and, as `PYTORCH_ALLOC_CONF`, into the launch command;\n"
        "`memory.reserve` lowers the capacity that the verdict is about. Under gloo on CPU,\n"
        "`ddp.gradient_as_bucket_view` and `dtype.reduce` equal real DDP and FSDP2 ranks in every figure\n"
        "(`tests/accuracy/test_distributed.py`).\n"
    )


def known_gpus_page() -> str:
    """The GPUs that are known by name."""
    from gpu_plan.commands.gpus import table

    return (
        "# Known GPUs\n\n`plan gpus` prints this list, `plan gpus NAME` every fact about one with its source.\n\n"
        f"```text\n{table(list(load_gpus().values()))}\n```\n\nGPUs of your own: [GPUs](gpus.md).\n"
    )


def upstream_page() -> str:
    """What is mirrored, by project and file."""
    lines = [
        "# Sources that are mirrored",
        "",
        "What this project computes, it computes as other projects do; every function, class or constant of theirs",
        "that is mirrored, patched or used though it is private stands here. Digests of Python sources are held in",
        "`planner/upstream/held.csv`: a test says what to read again when one moves, and a plan says in a warning",
        "which figures rest on an older source than the one installed. Of C++ and CUDA sources, which no wheel holds,",
        "and of projects that are not installed, the version alone is held.",
        "",
    ]
    versions = held_versions()
    for project in sorted({row.project for row in held()}, key=str.lower):
        rows = [row for row in held() if row.project == project]
        version = versions.get(project) or next((row.version for row in rows if row.version), "")
        lines += [f"## {project} {version}".rstrip(), "", "| file | symbols | used by |", "|---|---|---|"]
        for file in dict.fromkeys(row.file for row in rows):
            own = [row for row in rows if row.file == file]
            symbols = ", ".join(f"`{row.symbol}`" for row in own if row.symbol) or "the file"
            users = ", ".join(f"`{user}`" for user in sorted({user for row in own for user in row.used_by.split()}))
            lines.append(f"| `{file}` | {symbols} | {users} |")
        lines.append("")
    return "\n".join(lines)


def not_built_page() -> str:
    """What is refused by name."""
    from docs.site.not_built import not_built

    return (
        "# Not built yet\n\nThe interface has names for these; today they are refused, with exit code 2:\n\n"
        f"{not_built()}\n"
    )


PAGES: Mapping[str, Page] = {
    "options.md": options_page,
    "settings.md": settings_page,
    "known-gpus.md": known_gpus_page,
    "upstream.md": upstream_page,
    "not-built.md": not_built_page,
    "messages.md": messages_page,
}
"""Path in the site -> what makes the page."""
