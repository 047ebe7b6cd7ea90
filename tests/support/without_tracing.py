"""`python -m tests.support.without_tracing WORDS`: the command `plan` where nothing that traces is installed."""

import sys
from importlib import metadata
from importlib.machinery import PathFinder

ABSENT = ("torch", "transformers", "accelerate")


def hide() -> None:
    """Finds neither the packages nor their versions from now on."""
    find, version = PathFinder.find_spec, metadata.version

    def find_spec(fullname, path=None, target=None):
        return None if fullname.partition(".")[0] in ABSENT else find(fullname, path, target)

    def version_of(name):
        if name in ABSENT:
            raise metadata.PackageNotFoundError(name)
        return version(name)

    PathFinder.find_spec = find_spec
    metadata.version = version_of


if __name__ == "__main__":
    hide()
    from gpu_plan.cli import main

    sys.exit(main(sys.argv[1:]))
