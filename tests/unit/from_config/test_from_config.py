"""`plan from-config`: files of other tools, written as their users write them, become the right options."""

import json
from pathlib import Path

import pytest

from tests.support.configuration_files import FILES, HEAD, words


@pytest.mark.parametrize("name", FILES)
def test_a_file_becomes_the_options_it_means(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, expected = FILES[name]
    (tmp_path / name).write_text(content)
    (tmp_path / "ds3.json").write_text('{"zero_optimization": {"stage": 3}, "train_batch_size": "auto"}')
    known = "num_processes" in content
    code, out, _ = words(tmp_path / name, capsys, "--json", "--gpus", "H100" if known else "8xH100")
    assert code == 0
    found = json.loads(out)
    assert found["command"] == f"plan {expected}"
    assert found["kind"] == name.partition("-")[0].partition(".")[0].replace("training_args", "trainer").replace(
        "sft", "trainer"
    ).replace("zero2", "deepspeed").replace("zero3", "deepspeed")


def test_keys_without_a_meaning_are_all_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(FILES["axolotl-qlora.yml"][0])
    _, out, _ = words(path, capsys)
    assert "Changes neither memory nor time (2 keys): datasets, wandb_project" in out
    assert "sample_packing: true: rows are full, as planned" in out
    assert "Not understood" not in out
    assert "on one GPU that is --strategy single, on more --strategy ddp" in out
    path.write_text(FILES["zero2.json"][0])
    _, out, _ = words(path, capsys, "--json")
    assert json.loads(out)["passed_over"] == ["steps_per_print", "optimizer.params.lr", "optimizer.params.betas"]
    assert json.loads(out)["not_understood"] == []
    path.write_text(HEAD + "colour_of_the_gpu: red\nseed: 1\n")
    _, out, _ = words(path, capsys)
    assert "Not understood (1 keys): colour_of_the_gpu" in out


EIGHT_BITS = {
    "trainer": HEAD + "use_peft: true\nload_in_8bit: true\n",
    "axolotl": "base_model: x\nmicro_batch_size: 1\nadapter: lora\nload_in_8bit: true\n",
    "llamafactory": HEAD + "finetuning_type: lora\nquantization_bit: 8\n",
}


@pytest.mark.parametrize("kind", EIGHT_BITS)
def test_a_base_of_eight_bits(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(EIGHT_BITS[kind])
    code, out, _ = words(path, capsys, "--json")
    document = json.loads(out)
    assert (code, document["kind"], document["options"]["peft"]) == (0, kind, "qlora")
    assert document["settings"]["quant.base"] == "int8"


def test_what_sft_of_trl_has_on_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + "dataset_mixture: {datasets: []}\n")
    _, out, _ = words(path, capsys, "--json")
    options = json.loads(out)["options"]
    assert (options["precision"], options["checkpointing"], options["seq-len"]) == ("bf16-mixed", "full", "1024")


def test_a_sub_group_for_each_parameter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zero3.json"
    path.write_text('{"zero_optimization": {"stage": 3, "sub_group_size": 0}}')
    code, out, _ = words(path, capsys, "--json")
    assert (code, json.loads(out)["settings"]["zero.sub_group_size"]) == (0, "0")


def test_what_is_planned_otherwise_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("base_model: x\nmicro_batch_size: 1\nflex_attention: true\n")
    _, out, _ = words(path, capsys)
    assert "flex_attention is an attention" in out.partition("Planned otherwise:")[2]


def test_an_optimizer_that_is_not_planned_for_is_no_other_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("base_model: x\nmicro_batch_size: 1\noptimizer: adopt_adamw\n")
    code, out, err = words(path, capsys)
    assert (code, out) == (2, "")
    assert "optimizer: adopt_adamw is an optimizer that is not planned for" in err


FIREFLY = HEAD + "train_file: a.jsonl\ntemplate_name: qwen\nlora_rank: 64\n"


@pytest.mark.parametrize(
    ("more", "peft"), [("", "qlora"), ("train_mode: lora\n", "lora"), ("train_mode: full\n", None)]
)
def test_what_firefly_trains_by_default(
    more: str, peft: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(FIREFLY + more)
    _, out, _ = words(path, capsys, "--json")
    assert json.loads(out)["options"].get("peft") == peft


def test_an_optimizer_of_deepspeeds_file_takes_the_place_of_optim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    inner = "deepspeed: {zero_optimization: {stage: 2}, optimizer: {type: Adam}}\n"
    path.write_text(HEAD + "optim: adamw_hf\n" + inner)
    code, out, _ = words(path, capsys, "--json")
    document = json.loads(out)
    assert (code, document["options"]["optimizer"]) == (0, "adamw-fused")
    assert any(note.startswith("optim: adamw_hf") for note in document["notes"])


def test_the_folder_says_which_of_trls_trainers_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "recipes" / "dpo"
    folder.mkdir(parents=True)
    (folder / "full.yaml").write_text(HEAD + "beta: 0.1\nmax_prompt_length: 128\n")
    code, out, _ = words(folder / "full.yaml", capsys, "--json")
    assert (code, json.loads(out)["options"]["recipe"]) == (0, "dpo")


def test_deepspeed_does_not_heed_use_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nuse_cpu: true\nnum_processes: 8\n"
        "deepspeed_config: {zero_stage: 3}\nmixed_precision: bf16\n"
    )
    code, out, _ = words(path, capsys, "--json", "--gpus", "H100")
    document = json.loads(out)
    assert (code, document["options"]["strategy"]) == (0, "zero3")
    assert any(note.startswith("use_cpu is true") for note in document["notes"])


def test_trls_command_line_needs_no_batch_in_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`trl sft --config`: a model, a data set, and what differs from SFTConfig and ModelConfig."""
    file = tmp_path / "sft.yaml"
    file.write_text(
        "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: trl-lib/Capybara\nmax_length: 1024\npacking: true\n"
        "use_peft: true\nlora_r: 32\n"
    )
    code, told, _ = words(file, capsys)
    assert code == 0
    assert "plan Qwen/Qwen2.5-0.5B --precision bf16-mixed" in told
    assert "--seq-len 1024 --checkpointing full" in told
    file.write_text("model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d\nuse_peft: true\nbatch_size: 4\n")
    assert words(file, capsys)[0] == 2  # a script's own
