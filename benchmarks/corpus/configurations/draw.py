"""How configurations are drawn from checkouts: by a seed, some of each repository, nothing replaced afterwards."""

import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpus.configurations.listing import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Of each repository's shuffled files the first `few`; of these, shuffled once more, the first `drawn`, if told."""

    name: str
    """`NAME_drawn.json` beside this file takes what is drawn."""
    seed: int
    few: int
    repositories: Sequence[str]
    drawn: int | None = None

    def files(self, listing: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
        """Repository and path, in order."""
        chance = random.Random(self.seed)
        taken = [
            (name, path)
            for name, paths in sorted(listing.items())
            for path in chance.sample(paths, len(paths))[: self.few]
        ]
        return sorted(taken if self.drawn is None else chance.sample(taken, len(taken))[: self.drawn])

    def main(self) -> int:
        """Lists the checkouts of the folder that the command line names, and draws; 1 where a repository is missing."""
        folder = Path(sys.argv[1])
        missing = [name for name in self.repositories if not (folder / name).is_dir()]
        if missing:
            print(f"missing below {folder}: {', '.join(missing)}")
            return 1
        listing = {name: paths for name, paths in listed(folder).items() if name in self.repositories}
        files = self.files(listing)
        counts = {name: len(paths) for name, paths in listing.items()}
        document = {
            "seed": self.seed,
            "commits": {name: (folder / f"{name}.commit").read_text().strip() for name in listing},
            "listed": counts,
            "drawn": [{"repository": name, "path": path} for name, path in files],
        }
        (Path(__file__).parent / f"{self.name}_drawn.json").write_text(json.dumps(document, indent=1) + "\n")
        print(f"{sum(counts.values())} listed in {len(listing)} repositories, {len(files)} drawn")
        return 0
