"""Progress of a run of prompts: whatever is cut off where, no line is lost, torn or doubled. No torch here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_plan.executor.inference.prompting.progress import Journal, Progress, Result
from gpu_plan.executor.inference.prompting.ranks import Ranks, share
from gpu_plan.executor.inference.session import batches
from gpu_plan.planner.errors import InputError, UsageError

COUNT = 6
RESULTS: list[Result] = [{"index": index, "text": "ä\n" * index, "output_ids": [index] * 3} for index in range(COUNT)]


def progress_in(folder: Path, **job: object) -> Progress:
    return Progress(output=folder / "out.jsonl", count=COUNT, job={"prompts": "abc", "sampling": [0.0, 1], **job})


def read(folder: Path) -> list[Result]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_wherever_a_file_is_cut_the_rest_is_done_once(size: int, tmp_path: Path) -> None:
    """Every prefix of the journal's bytes, as a kill or a full disk may leave it."""
    whole = progress_in(tmp_path)
    whole.begin(force=False)
    journal = Journal(whole, 0)
    for results in batches(RESULTS, size):  # type: ignore[type-var]
        journal.append(results)
    journal.close()
    content = journal.path.read_bytes()
    for cut in range(0, len(content) + 1, 3):
        folder = tmp_path / f"cut-{cut}"
        folder.mkdir()
        progress = progress_in(folder)
        progress.begin(force=False)
        (progress.folder / "replica-0.jsonl").write_bytes(content[:cut])
        done = progress.read()
        assert len(done) == content[:cut].count(b"\n")
        again = Journal(progress, 0)
        again.append([result for result in RESULTS if result["index"] not in done])
        again.close()
        assert progress.finish()
        assert read(folder) == RESULTS
        assert progress.finished
        assert [path.name for path in folder.iterdir()] == ["out.jsonl"]


@settings(max_examples=40, deadline=None)
@given(shares=st.lists(st.sets(st.integers(0, COUNT - 1)), min_size=1, max_size=4))
def test_replicas_of_any_shares_make_one_output(
    shares: list[set[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A run that went on with another number of replicas; a prompt in two of them stands once."""
    folder = tmp_path_factory.mktemp("shares")
    progress = progress_in(folder)
    progress.begin(force=False)
    for replica, indexes in enumerate(shares):
        journal = Journal(progress, replica)
        journal.append([RESULTS[index] for index in sorted(indexes)])
        journal.close()
    complete = set().union(*shares) == set(range(COUNT))
    assert progress.finish() is complete
    assert (folder / "out.jsonl").exists() is complete
    if complete:
        assert read(folder) == RESULTS
        assert progress.finish()  # a second replica that ends later finds it done


def test_progress_of_another_run_is_not_gone_on_with(tmp_path: Path) -> None:
    first = progress_in(tmp_path)
    first.begin(force=False)
    other = progress_in(tmp_path, prompts="other")
    with pytest.raises(InputError, match=r"progress of another run \(prompts differ\): --force begins again"):
        other.check(force=False, resume=True)
    with pytest.raises(InputError, match="prompts differ"):
        other.begin(force=False)
    other.check(force=True, resume=False)
    other.begin(force=True)
    assert other.read() == {}


def test_lines_that_are_no_results_are_run_again(tmp_path: Path) -> None:
    progress = progress_in(tmp_path)
    progress.begin(force=False)
    lines = [b"\0" * 40, b"[]", b'{"index": 99}', b'{"index": "0"}', b'{"index": 1, "output_ids": []}']
    (progress.folder / "replica-0.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    assert list(progress.read()) == [1]


def test_two_runs_do_not_write_one_output(tmp_path: Path) -> None:
    """The other run is another process."""
    progress = progress_in(tmp_path)
    progress.begin(force=False)
    path = progress.folder / "replica-0.jsonl"
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'ab'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True);"
        " sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match="another run writes"):
            Journal(progress, 0)
        assert other.stdin is not None
        other.stdin.close()
        other.wait()
    Journal(progress, 0).close()


def test_a_torn_line_is_taken_away_before_the_next(tmp_path: Path) -> None:
    progress = progress_in(tmp_path)
    progress.begin(force=False)
    path = progress.folder / "replica-0.jsonl"
    long = json.dumps({"index": 0, "text": "x" * 200_000})
    path.write_bytes(long.encode() + b"\n" + b'{"index": 1, "text": "' + b"y" * 200_000)
    journal = Journal(progress, 0)
    assert path.read_bytes() == long.encode() + b"\n"
    journal.append([RESULTS[2]])
    journal.close()
    assert sorted(progress.read()) == [0, 2]


@pytest.mark.parametrize("per_replica", [2, 3])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_shares_are_whole_in_order_and_even(per_replica: int, replicas: int) -> None:
    """Replicas of several ranks: each of a replica's ranks has its replica's share, and one of them writes."""
    items = list(range(11))
    world = per_replica * replicas
    ranks = [Ranks(rank=rank, world_size=world, replicas=replicas) for rank in range(world)]
    shares = [share(items, rank) for rank in ranks]
    written = [mine for rank, mine in zip(ranks, shares, strict=True) if rank.writes]
    assert [item for mine in written for item in mine] == items
    assert max(map(len, written)) - min(map(len, written)) <= 1
    for rank, mine in zip(ranks, shares, strict=True):
        assert mine == written[rank.replica]


def test_a_finished_output_is_known_by_its_lines(tmp_path: Path) -> None:
    progress = progress_in(tmp_path)
    assert not progress.finished
    (tmp_path / "out.jsonl").write_text("{}\n" * (COUNT - 1))
    assert not progress.finished
    (tmp_path / "out.jsonl").write_text("{}\n" * COUNT)
    assert progress.finished
    os.mkdir(progress.folder)
    assert not progress.finished
