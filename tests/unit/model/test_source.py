"""What MODEL may be, apart from the network: catalog, folders, files, nonsense."""

import json
import subprocess
import sys

import pytest
from test_source_headers import safetensors

from gpu_plan.planner.errors import InputError, PlanError, UnreachableError, UsageError
from gpu_plan.planner.model.catalog_index import load_index
from gpu_plan.planner.model.source.resolve import resolve

CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}


@pytest.fixture(autouse=True)
def _isolated(tmp_path, monkeypatch):
    """An empty Hugging Face cache, a working directory of its own, and no network."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def _folder(path, config=CONFIG):
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_a_hub_id_comes_from_the_catalog():
    source = resolve("meta-llama/Llama-3.1-8B")
    assert (source.kind, source.id, source.notes) == ("catalog", "meta-llama/Llama-3.1-8B", ())
    assert source.config["hidden_size"] == 4096
    assert source.path == load_index()["meta-llama/Llama-3.1-8B"].path


def test_another_spelling_is_read_with_a_note():
    source = resolve("META-LLAMA/llama-3.1-8b")
    assert source.id == "meta-llama/Llama-3.1-8B"
    assert "is read as meta-llama/Llama-3.1-8B" in source.notes[0]


def test_every_native_catalog_model_resolves_and_no_other():
    refused = []
    for entry in load_index().values():
        try:
            assert resolve(entry.id).kind == "catalog"
        except UsageError as error:
            refused.append(entry.id if "--trust-remote-code" in str(error) else str(error))
    assert refused == [entry.id for entry in load_index().values() if not entry.native]
    assert len(load_index()) - len(refused) == 196


def test_the_digest_follows_content_not_layout(tmp_path):
    first = resolve(str(_folder(tmp_path / "a")))
    second = resolve(str(_folder(tmp_path / "b", dict(reversed(CONFIG.items())))))
    third = resolve(str(_folder(tmp_path / "c", CONFIG | {"hidden_size": 128})))
    assert first.digest == second.digest != third.digest
    assert len(first.digest) == 64


def test_a_folder_gives_its_config_and_stored_weights(tmp_path):
    folder = _folder(tmp_path / "mine")
    (folder / "model.safetensors").write_bytes(safetensors({"w": ("BF16", (3, 4))}))
    source = resolve(str(folder))
    assert (source.kind, source.id, source.config) == ("folder", str(folder), CONFIG)
    assert source.stored.parameters == 12
    assert resolve(str(folder), read_headers=False).stored is None


def test_a_config_file_is_enough(tmp_path):
    path = _folder(tmp_path / "mine") / "config.json"
    source = resolve(str(path))
    assert (source.kind, source.config, source.stored) == ("config", CONFIG, None)


def test_a_catalog_model_uses_headers_from_the_local_cache(tmp_path):
    repo = tmp_path / "hf" / "hub" / "models--openai-community--gpt2"
    snapshot = _folder(repo / "snapshots" / "abc", {"model_type": "gpt2"})
    (snapshot / "model.safetensors").write_bytes(safetensors({"wte.weight": ("F32", (7, 3))}))
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    source = resolve("openai-community/gpt2")
    assert source.kind == "catalog"
    assert source.stored.entries == {"wte.weight": ((7, 3), "float32")}


def test_the_local_cache_is_read_by_branch_and_commit(tmp_path, monkeypatch):
    repo = tmp_path / "elsewhere" / "models--me--mine"
    _folder(repo / "snapshots" / "abc")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc\n")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    source = resolve("me/mine")
    assert (source.kind, source.id, source.revision, source.config) == ("cache", "me/mine", "abc", CONFIG)
    assert resolve("me/mine", revision="abc").revision == "abc"
    with pytest.raises(UnreachableError, match="HF_HUB_OFFLINE"):
        resolve("me/mine", revision="other")
    with pytest.raises(UnreachableError, match="HF_HUB_OFFLINE"):
        resolve("me/mine", revision="../snapshots/abc")


def test_a_revision_passes_the_catalog_over():
    with pytest.raises(UnreachableError, match="HF_HUB_OFFLINE"):
        resolve("openai-community/gpt2", revision="refs/pr/1")


def test_an_unknown_id_offline_names_the_nearest():
    with pytest.raises(UnreachableError, match=r"Did you mean meta-llama/Llama-3\.1-8B") as caught:
        resolve("meta-llama/Lama-3.1-8B")
    assert caught.value.exit_code == 3


def test_foreign_code_is_refused_by_name(tmp_path):
    config = {"model_type": "brand-new", "auto_map": {"AutoConfig": "code.Config"}}
    folder = _folder(tmp_path / "new", config)
    with pytest.raises(UsageError, match=r"'brand-new'.*--trust-remote-code"):
        resolve(str(folder))
    assert resolve(str(folder), trust_remote_code=True).config == config


def test_a_misspelt_model_type_is_corrected(tmp_path):
    with pytest.raises(UsageError, match="Did you mean llama"):
        resolve(str(_folder(tmp_path / "typo", {"model_type": "llamma"})))


def test_a_training_script_is_its_own_source(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    first = resolve(str(script))
    assert (first.kind, first.config, first.path) == ("script", None, script)
    script.write_text("print(2)\n")
    assert resolve(str(script)).digest != first.digest
    with pytest.raises(UnreachableError, match=r"nowhere\.py does not exist"):
        resolve("nowhere.py")


@pytest.mark.parametrize(
    ("model", "error", "said"),
    [
        ("", InputError, "MODEL is ''"),
        ("  ", InputError, "MODEL is"),
        ("a\x00b", InputError, "MODEL is"),
        ("a\nb", InputError, "MODEL is"),
        ("../", InputError, "has no config.json"),
        ("./missing", UnreachableError, "no file or folder ./missing"),
        ("some/where/deep", UnreachableError, "no file or folder"),
        ("missing/config.json", UnreachableError, "no file or folder"),
        ("~/no-such-folder-here", UnreachableError, "no file or folder"),
        ("llama.Q4_K_M.gguf", InputError, "names weights"),
        ("https://huggingface.co/openai-community/gpt2", InputError, "is an address"),
        ("two words", InputError, "is not a hub id"),
        ("a--b/c", InputError, "is not a hub id"),
        ("-1x", InputError, "is not a hub id"),
        ("mod:1st", InputError, "package.module:function"),
        ("a:b:c", InputError, "package.module:function"),
        ("x" * 5000, InputError, "is not a hub id"),
        ("/dev/null", InputError, "neither a file nor a folder"),
    ],
)
def test_nonsense_gets_one_line(model, error, said):
    with pytest.raises(error) as caught:
        resolve(model)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_config_are_refused(tmp_path):
    for name, said in (("w.gguf", "holds weights"), ("notes.txt", "is not a config.json")):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(InputError, match=said):
            resolve(str(tmp_path / name))
    (tmp_path / "huge.json").write_bytes(b"[" * 10_000_000)
    with pytest.raises(InputError, match=r"huge\.json is 5,000,001 bytes"):
        resolve(str(tmp_path / "huge.json"))


def test_a_folder_with_a_corrupt_shard_is_refused(tmp_path):
    folder = _folder(tmp_path / "mine")
    (folder / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(PlanError, match=r"model\.safetensors is not a usable safetensors file"):
        resolve(str(folder))


def test_resolving_imports_neither_torch_nor_the_hub(tmp_path):
    code = (
        "import sys; from gpu_plan.planner.model.source.resolve import resolve; resolve('meta-llama/Llama-3.1-8B');"
        "print(sorted({'torch', 'transformers', 'huggingface_hub', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_native_model_types_are_those_of_transformers():
    from gpu_plan.planner.model.source.native import native_model_types

    code = "from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES as names; print(*names)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert native_model_types() == frozenset(done.stdout.split())
