"""Count the parameters of every native catalog model; what `tests/golden/parameters.json` is made from.

    python -m tests.support.count_catalog > tests/golden/parameters.json

A changed count is a change of transformers or of the builder: look at it before committing the new file.
"""

import json
import sys
from typing import Any

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.model.catalog_index import CatalogEntry, load_index


def native_entries() -> list[CatalogEntry]:
    """Catalog entries that transformers has a class for, smallest first."""
    return sorted((e for e in load_index().values() if e.native), key=lambda e: e.meta_params or 0)


def counts(entry: CatalogEntry) -> dict[str, Any]:
    """What is pinned of one model."""
    spec = spec_of(build_model(json.loads(entry.path.read_text())), model_id=entry.id)
    return {
        "class": spec.class_name,
        "kind": spec.kind,
        "parameters": spec.num_parameters,
        "trainable": spec.trainable_parameters,
        "tensors": sum(parameter.tied_to is None for parameter in spec.parameters),
        "tied": sorted(parameter.name for parameter in spec.parameters if parameter.tied_to is not None),
    }


def main() -> None:
    json.dump({entry.id: counts(entry) for entry in native_entries()}, sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
