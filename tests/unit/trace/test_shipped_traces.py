"""Books of shipped traces: read back as written, refused when damaged, served only for the code they stand for."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gpu_plan.planner.cache_dir import versions
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.catalog_index import load_index
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.trace.device import DeviceKind
from gpu_plan.planner.trace.shipped import lookup as module
from gpu_plan.planner.trace.shipped.book import DamagedBookError, read_book, write_book
from gpu_plan.planner.trace.shipped.lookup import ADAPTED, BOOKS, SEARCHED, find_shipped
from gpu_plan.planner.trace.shipped.source import digest_of, first_difference, installed_folders
from gpu_plan.planner.trace.storage import dump, written
from gpu_plan.planner.trace.storage.columns import packed, packed_floats, unpacked, unpacked_floats
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.adapters import Peft
from gpu_plan.planner.workload.stacks.registry import Stack
from gpu_plan.planner.workload.training import Attention, Checkpointing

LLAMA = "meta-llama/Llama-3.1-8B"
LORA = Peft("lora")
INTEGERS = arrays.arrays(np.int64, st.integers(0, 40), elements=st.integers(-(2**62), 2**62))


@pytest.fixture(scope="module")
def path():
    return next(BOOKS.glob(f"*.{resolve(LLAMA).digest[:16]}.traces"))


@given(INTEGERS, st.integers(1, 5))
def test_columns_come_back(values, kinds):
    groups = np.arange(len(values)) % kinds
    small = values % 1000
    assert np.array_equal(unpacked(packed(values), len(values)), values)
    assert np.array_equal(unpacked(packed(small, groups), len(values), groups), small)


@given(arrays.arrays(np.float64, st.integers(0, 20), elements=st.floats(allow_nan=True)))
@settings(deadline=None)
def test_floats_come_back_bit_by_bit(values):
    assert unpacked_floats(packed_floats(values), len(values)).tobytes() == values.tobytes()


def test_a_book_comes_back(path):
    book = read_book(path.read_bytes())
    key, trace = next((key, book.trace(key)) for key in book.places if "seq=*" not in key)
    again = read_book(write_book(book.model, book.versions, book.files, book.spec, {key: written(trace)}))
    assert (again.spec, again.files, again.versions) == (book.spec, book.files, book.versions)
    assert dump(again.trace(key)) == dump(trace)


@pytest.mark.parametrize("damage", ["cut", "changed", "other format", "empty", "text"])
def test_a_damaged_book_is_named_and_passed_over(path, tmp_path, damage):
    sound = path.read_bytes()
    middle = len(sound) // 2
    (tmp_path / path.name).write_bytes(
        {
            "cut": sound[:-1],
            "changed": sound[:middle] + bytes([sound[middle] ^ 1]) + sound[middle + 1 :],
            "other format": sound.replace(b"traces 3", b"traces 9", 1),
            "empty": b"",
            "text": b"{}",
        }[damage]
    )
    said = []
    with pytest.raises(DamagedBookError):
        read_book((tmp_path / path.name).read_bytes())
    assert find_shipped(resolve(LLAMA).digest, said.append, tmp_path) is None
    assert len(said) == 1
    assert path.name in said[0]
    assert "traced anew" in said[0]


def test_parts_are_read_as_far_as_they_say(path):
    """A stranger's book whose checksum holds: a part that says that it holds less than is asked for, holds less than it
    says, is larger than any, cut off, or something else. No more is unpacked than was asked for."""
    book = read_book(path.read_bytes())
    key = max((key for key in book.places if "seq=*" not in key), key=lambda key: book.places[key][1])
    number, first, length = book.places[key]
    taken, holds = book.parts[number]
    cut = book.content[: sum(taken for taken, _ in book.parts[:number]) + 100]
    for said, place, content in (
        (first + length - 1, (number, first, length), book.content),
        (2**40, (number, holds, 1), book.content),
        (2**40, (number, 2**39, 1), book.content),
        (holds, (number, first, length), cut),
        (holds, (number, first, length), cut[:-100] + b"x" * taken),
    ):
        parts = tuple((taken, said) if at == number else part for at, part in enumerate(book.parts))
        damaged = replace(book, parts=parts, places={**book.places, key: place}, content=content, _read={})
        with pytest.raises(DamagedBookError):
            damaged.trace(key)


def test_parts_are_unpacked_as_far_as_they_are_read(path):
    """Any order of asking gives the same."""
    content = path.read_bytes()
    book, again = read_book(content), read_book(content)
    keys = [key for key in book.places if "seq=*" not in key]
    forwards = {key: book.stored(key) for key in keys}
    assert {key: again.stored(key) for key in reversed(keys)} == forwards
    assert [len(forwards[key]) for key in keys] == [book.places[key][2] for key in keys]


def test_a_book_under_the_name_of_another_model_is_passed_over(path, tmp_path):
    """A sound book, copied over another one's file: its traces stand for another model."""
    other = next(BOOKS.glob("Qwen--Qwen2.5-7B.*.traces"))
    (tmp_path / path.name).write_bytes(other.read_bytes())
    said = []
    assert find_shipped(resolve(LLAMA).digest, said.append, tmp_path) is None
    assert said == [
        f"the shipped traces {path.name} cannot be read (it is that of Qwen/Qwen2.5-7B): traced anew; install gpu-plan"
        " again"
    ]


def test_other_code_is_traced_and_told(path, monkeypatch):
    book = read_book(path.read_bytes())
    monkeypatch.setattr(module, "_difference", lambda *_: "transformers/x.py of transformers 9")
    said = []
    assert find_shipped(resolve(LLAMA).digest, said.append) is None
    assert said == [
        f"the shipped trace of {book.model} is of other code than transformers/x.py of transformers 9: traced anew"
    ]


def test_what_the_first_book_has_opens_no_second(monkeypatch):
    opened, reads = [], module.read_book
    monkeypatch.setattr(module, "read_book", lambda content: opened.append(1) or reads(content))
    found = find_shipped(resolve(LLAMA).digest, pytest.fail)
    assert found.trace(next(iter(found.book.places))) is not None
    assert (len(opened), found.trace("another"), found.trace("a third"), len(opened)) == (1, None, None, 2)


def test_equal_files_serve_whatever_the_version_is_called(path):
    book = read_book(path.read_bytes())
    folders = installed_folders()
    here = {**versions(), "transformers": "99.0", "accelerate": "99.0"}
    files = {file: digest_of(folders[file.partition("/")[0]] / file.partition("/")[2]) for file in book.files}
    assert first_difference(files, book.versions, {**here, "torch": book.versions["torch"]}) is None
    assert "torch 9.9" in first_difference(files, book.versions, {**here, "torch": "9.9"})
    changed = files | {next(file for file in files if file.startswith("transformers/")): "0" * 16}
    assert "transformers 99.0" in first_difference(changed, book.versions, {**here, "torch": book.versions["torch"]})


@pytest.mark.parametrize(
    ("capability", "kernels"),
    [(None, None), ((7, 5), "before-flash"), ((8, 0), "flash"), ((8, 9), "small-flash"), ((9, 0), "cudnn")],
)
def test_devices_that_choose_alike_share_traces(capability, kernels):
    assert DeviceKind(capability=capability, sm_count=1).kernels == kernels


def test_every_book_stands_for_the_pinned_versions():
    for path in (*BOOKS.glob("*.traces"), *BOOKS.glob("*.facts")):
        book = read_book(path.read_bytes())
        assert first_difference(book.files, book.versions, versions()) is None, "run `make traces`"
        assert path.name == module.book_name(book.model, resolve(book.model).digest, path.suffix[1:])
        assert bool(book.places) == (path.suffix == ".traces")


def test_every_book_of_an_adapter_stands_for_the_pinned_versions():
    books = sorted(ADAPTED.glob("*.traces"))
    assert books
    for path in books:
        book = read_book(path.read_bytes())
        assert first_difference(book.files, book.versions, versions()) is None, "run `make traces`"
        assert path.name == module.book_name(book.model, resolve(book.model).digest, adapter=Adapter(peft=LORA).key())
        assert list(book.versions) == ["torch", "transformers", "accelerate", "peft"]
        assert any(file.startswith("peft/") for file in book.files)


DEEPSEEK = "deepseek-ai/DeepSeek-V3"


def test_every_book_of_searches_stands_for_the_pinned_versions():
    books = sorted(SEARCHED.glob("*.traces"))
    assert books
    for path in books:
        book = read_book(path.read_bytes())
        assert first_difference(book.files, book.versions, versions()) is None, "run `make traces`"
        assert path.name.startswith(f"{book.model.replace('/', '--')}.{resolve(book.model).digest[:16]}.")
        assert ("peft" in book.versions) == ("lora" in path.name)


def test_what_searches_ask_for_stands_behind_a_models_book(tmp_path, monkeypatch):
    digest = resolve(DEEPSEEK).digest
    found = find_shipped(digest, pytest.fail)
    more = found.more()
    assert more is not None
    beyond = next(key for key in more.book.places if key not in found.book.places)
    assert dump(found.trace(beyond)) == dump(more.book.trace(beyond))
    key, why = next(iter(more.book.refusals.items()))
    assert "which DeepSpeed's Ulysses refuses" in why
    assert (found.refusal(key), found.refusal("another"), found.refusal(None)) == (why, None, None)
    # One that is damaged is named, and the model's own is served.
    monkeypatch.setattr(module, "SEARCHED", tmp_path)
    (tmp_path / more.path.name).write_bytes(b"gpu-plan traces 3\n")
    said = []
    alone = find_shipped(digest, said.append)
    assert (alone.more(), alone.trace(beyond), alone.refusal(key)) == (None, None, None)
    assert len(said) == 1
    assert more.path.name in said[0]


def test_adapters_that_a_search_looked_at_have_books_of_their_own():
    digest = resolve(DEEPSEEK).digest
    adapted = find_shipped(digest, pytest.fail, adapter=Adapter(peft=LORA).key())
    plain = find_shipped(digest, pytest.fail)
    assert adapted.book.spec.num_parameters > plain.book.spec.num_parameters
    assert adapted.path.parent == SEARCHED


@pytest.mark.parametrize(
    ("capability", "alike", "names"),
    [((9, 0), True, "cudnn"), ((9, 0), False, "sm90x132"), ((8, 0), False, "sm80x132"), (None, False, None)],
)
def test_what_asks_which_device_it_is_stands_for_that_device(capability, alike, names):
    variant = StepVariant(
        regime=Regime(weights="bfloat16"), checkpointing=Checkpointing.NONE, attention=Attention.SDPA,
        stack=Stack("accelerate"), seq_len=4096,
    )  # fmt: skip
    device = DeviceKind(capability=capability, sm_count=132)
    key = module.shelf_key(device, "sdpa", variant, (1,), alike=alike)
    assert (key and key.partition(" ")[0]) == names
    fused = module.shelf_key(device, "sdpa", replace(variant, fused=("loss",)), (1,), alike=alike)
    assert (fused and fused.partition(" ")[0]) == (names and device.key)


def test_a_book_stands_for_its_adapter_alone():
    digest = resolve(LLAMA).digest
    plain = find_shipped(digest, pytest.fail)
    adapted = find_shipped(digest, pytest.fail, adapter=Adapter(peft=LORA).key())
    assert plain is not None
    assert adapted is not None
    assert adapted.book.spec.num_parameters > plain.book.spec.num_parameters
    assert find_shipped(digest, pytest.fail, adapter=Adapter(peft=LORA, rank=8).key()) is None
    assert find_shipped(digest, pytest.fail, adapter=Adapter(peft=Peft("qlora"), rank=8).key()) is None


def test_every_model_of_the_catalog_that_has_a_class_is_known_without_it():
    known = {path.name.partition(".")[0] for path in BOOKS.iterdir()}
    digests = {path.name.split(".")[-2] for path in BOOKS.iterdir()}
    native = [entry for entry in load_index().values() if entry.native]
    assert [entry.id for entry in native if resolve(entry.id).digest[:16] not in digests] == []
    assert len(known) <= len(native)


def test_facts_count_what_the_catalog_counts():
    for entry in load_index().values():
        shipped = find_shipped(resolve(entry.id).digest, pytest.fail) if entry.native else None
        assert shipped is None or shipped.book.spec.num_parameters == entry.meta_params, entry.id


def without_tracing(tmp_path, *words):
    environment = os.environ | {"GPU_PLAN_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "tests.support.without_tracing", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)


@pytest.mark.slow
def test_without_torch_the_largest_mixture_is_planned(tmp_path):
    done = without_tracing(tmp_path, DEEPSEEK, "--gpus", "4x8xH200", "--json")
    assert done.returncode == 1, done.stderr  # tight plans alone
    found = json.loads(done.stdout)
    assert any(plan["strategy"]["context_parallel"] == 8 for plan in found["plans"])
    assert any("--peft lora" in one["change"] for one in found["alternatives"])


def test_without_torch_a_shipped_model_is_planned(tmp_path):
    done = without_tracing(tmp_path, LLAMA, "--gpus", "8xH100", "--strategy", "fsdp", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["plans"]
    assert any("not installed here: torch" in line["text"] for line in found["assumptions"])


def test_without_torch_a_shipped_model_is_planned_under_lora(tmp_path):
    words = (LLAMA, "--gpus", "1xRTX4090", "--peft", "lora")
    done = without_tracing(tmp_path, *words, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["plans"]
    other = without_tracing(tmp_path, *words, "--lora-rank", "8")
    assert other.returncode == 2
    assert "pip install 'gpu-plan[peft]'" in other.stderr


def test_without_torch_micro_batches_that_are_not_shipped_are_left_out(tmp_path):
    """Mistral's step is of another structure at each small micro batch: 3, between 2 and 4, has no trace."""
    words = ("--strategy", "fsdp", "--checkpointing", "none", "--json")
    done = without_tracing(tmp_path, "mistralai/Mistral-7B-v0.1", "--gpus", "8xH100", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["plans"][0]["strategy"]["micro_batch_size"] == 2
    assert any(line["text"].endswith("not shipped: micro batches 3") for line in found["assumptions"])


def test_without_torch_another_model_is_one_line(tmp_path):
    done = without_tracing(tmp_path, "EleutherAI/pythia-70m", "--gpus", "1xT4")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.strip().splitlines()) == 1
    assert "pip install 'gpu-plan[trace]'" in done.stderr


def test_a_package_that_cannot_be_imported_is_named_in_one_line(tmp_path):
    """As where transformers is newer than what it needs."""
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").write_text("import some_client_that_is_not_there\n")
    environment = os.environ | {"GPU_PLAN_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "gpu_plan", "EleutherAI/pythia-70m", "--gpus", "1xT4"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == (
        "plan: error: transformers, as it is installed, cannot be imported: "
        "No module named 'some_client_that_is_not_there'"
    )


def test_without_torch_what_is_not_tried_is_said_beside_the_answer(tmp_path):
    """Of shares of samples, which might be faster there, no trace is shipped."""
    words = (LLAMA, "--gpus", "2xT4", "--strategy", "fsdp", "--checkpointing", "full")
    done = without_tracing(tmp_path, *words, "--json")
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert [plan["verdict"] for plan in found["plans"]][:1] == ["tight"]
    said = "not tried, since no trace of it is shipped: samples shared out over 2 GPUs (--cp 2)"
    assert any(line["text"] == said for line in found["assumptions"])


def test_without_torch_what_alone_would_be_left_is_named(tmp_path):
    """Nothing fits there but, perhaps, shares of samples."""
    done = without_tracing(tmp_path, LLAMA, "--gpus", "8xH100", "--strategy", "fsdp", "--seq-len", "65536")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no trace is shipped of samples shared out over" in done.stderr
    asked = without_tracing(tmp_path, LLAMA, "--gpus", "8xH100", "--tp", "2")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "no trace is shipped of a model shared out over 2 GPUs (--tp 2), and tracing needs torch" in asked.stderr
