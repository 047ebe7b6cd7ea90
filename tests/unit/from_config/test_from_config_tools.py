"""`plan from-config` on files of tools with defaults and names of their own, written as their users write them."""

import json
import random
import tomllib
from pathlib import Path

import pytest
import yaml

from gpu_plan.cli import main
from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.from_config import show
from gpu_plan.planner.from_config.convert import convert
from tests.support.configuration_files import spoilt

TUNE = """
model:
  _component_: torchtune.models.llama3_1.qlora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 64
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 2048}
checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer, checkpoint_dir: /tmp/Meta-Llama-3.1-8B/}
batch_size: 2
gradient_accumulation_steps: 8
optimizer: {_component_: torch.optim.AdamW, fused: True, lr: 3e-4}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
dtype: bf16
enable_activation_checkpointing: True
"""
TITAN = """
[model]
name = "llama3"
flavor = "8B"
hf_assets_path = "./assets/hf/Llama-3.1-8B"
[training]
local_batch_size = 1
seq_len = 8192
steps = 1000
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
"""
LIT = """
checkpoint_dir: checkpoints/meta-llama/Llama-2-7b-hf
precision: bf16-true
devices: DEVICES
lora_r: 32
lora_key: true
lora_dropout: 0.0
train: {global_batch_size: 64, micro_batch_size: 2, max_seq_length: 512}
"""

FILES: dict[str, tuple[str, str, str]] = {
    "8B_qlora_single_device.yaml": (
        TUNE,
        "torchtune",
        "meta-llama/Meta-Llama-3.1-8B --gpus 1xH100 --strategy single --precision bf16 --optimizer adamw-fused"
        " --micro-batch 2 --grad-accum 8 --seq-len 2048 --checkpointing full --peft qlora --lora-rank 64"
        " --lora-targets q_proj,v_proj,o_proj,gate_proj,up_proj,down_proj --stack STACK --set quant.double=true",
    ),
    "8B_lora.yaml": (
        TUNE.replace("qlora_", "lora_").replace("True\ntok", "True\nx: 1\ntok") + "fsdp_cpu_offload: True\n",
        "torchtune",
        "meta-llama/Meta-Llama-3.1-8B --gpus 8xH100 --strategy fsdp --offload all --precision bf16"
        " --optimizer adamw-fused --micro-batch 2 --grad-accum 8 --seq-len 2048 --checkpointing full --peft lora"
        " --lora-rank 64 --lora-targets q_proj,v_proj,o_proj,gate_proj,up_proj,down_proj --stack STACK",
    ),
    "llama3_8b.toml": (
        TITAN,
        "torchtitan",
        "meta-llama/Llama-3.1-8B --gpus 8xH100 --strategy fsdp --offload none --precision bf16-mixed"
        " --optimizer adamw-fused --micro-batch 1 --grad-accum 1 --seq-len 8192 --checkpointing full --stack STACK"
        " --set checkpoint.every=2 --set clip.max_norm=1.0",
    ),
    "llama3_op.toml": (
        TITAN.replace("degree = 1", "degree = 2") + '[activation_checkpoint]\nmode = "selective"\n'
        'selective_ac_option = "op"\n[optimizer]\nimplementation = "foreach"\n',
        "torchtitan",
        "meta-llama/Llama-3.1-8B --gpus 8xH100 --strategy hsdp --dp-replicate 2 --offload none --precision bf16-mixed"
        " --optimizer adamw --micro-batch 1 --grad-accum 1 --seq-len 8192 --checkpointing selective --stack STACK"
        " --set clip.max_norm=1.0",
    ),
    "lora.yaml": (
        LIT.replace("DEVICES", "8"),
        "litgpt",
        "meta-llama/Llama-2-7b-hf --gpus 8xH100 --strategy fsdp --precision bf16 --optimizer adamw --micro-batch 2"
        " --grad-accum 4 --seq-len 512 --checkpointing full --peft lora --lora-rank 32"
        " --lora-targets q_proj,k_proj,v_proj --stack STACK --set eval.batch=2",
    ),
    "lora_alone.yaml": (
        LIT.replace("DEVICES", "1"),
        "litgpt",
        "meta-llama/Llama-2-7b-hf --gpus 1xH100 --strategy single --precision bf16 --optimizer adamw --micro-batch 2"
        " --grad-accum 32 --seq-len 512 --checkpointing none --peft lora --lora-rank 32"
        " --lora-targets q_proj,k_proj,v_proj --stack STACK --set eval.batch=2",
    ),
    "sft.json": (
        '{"model": "Qwen/Qwen2.5-7B-Instruct", "tuner_type": "lora", "torch_dtype": "bfloat16", "max_length": 2048,'
        ' "deepspeed": "zero2_offload", "attn_impl": "flash_attn"}',
        "ms-swift",
        "Qwen/Qwen2.5-7B-Instruct --gpus 8xH100 --strategy zero2 --offload optimizer --precision bf16-mixed"
        " --optimizer adamw-fused --micro-batch 1 --grad-accum 2 --seq-len 2048 --checkpointing full --attention flash"
        " --peft lora --lora-rank 8 --lora-targets all-linear --stack STACK --set checkpoint.reentrant=true"
        " --set lora.dropout=0.05",
    ),
    "lora_text.yaml": (
        "model: unsloth/Qwen2.5-0.5B\ntraining: {batch_size: 2, max_seq_length: 1024, train_on_completions: false,"
        " gradient_checkpointing: 'true'}\nlora: {lora_r: 16, target_modules: [all-linear]}\n",
        "unsloth",
        "unsloth/Qwen2.5-0.5B --gpus 8xH100 --strategy ddp --precision bf16-mixed --optimizer adamw-8bit"
        " --micro-batch 2 --grad-accum 4 --seq-len 1024 --checkpointing full --peft qlora --lora-rank 16"
        " --lora-targets all-linear --stack STACK --set quant.double=true",
    ),
    "tulu3_sft.yaml": (
        "model_name_or_path: meta-llama/Llama-3.1-8B\nuse_slow_tokenizer: true\nper_device_train_batch_size: 1\n"
        "gradient_accumulation_steps: 2\nmax_seq_length: 4096\nnum_train_epochs: 2\noutput_dir: o\n",
        "open-instruct",
        "meta-llama/Llama-3.1-8B --gpus 8xH100 --strategy ddp --precision bf16-mixed --optimizer adamw-fused"
        " --micro-batch 1 --grad-accum 2 --seq-len 4096 --checkpointing none --attention flash --stack STACK"
        " --set dtype.params=bfloat16",
    ),
    "train_full_fsdp2.yaml": (
        "model: Qwen/Qwen3-0.6B\ndist_config: {name: fsdp2, dcp_path: null}\nkernel_config: {name: auto}\n"
        "quant_config: null\ntrain_dataset: d.yaml\nmicro_batch_size: 1\ncutoff_len: 2048\noutput_dir: o\n",
        "llamafactory-v1",
        "Qwen/Qwen3-0.6B --gpus 8xH100 --strategy fsdp --offload none --precision bf16-mixed --optimizer adamw"
        " --micro-batch 1 --grad-accum 1 --seq-len 2048 --checkpointing full --attention sdpa --stack STACK"
        " --set clip.max_norm=1.0",
    ),
    "fsdp2.json": (
        '{"_note": "a preset", "fsdp": "full_shard auto_wrap",'
        ' "fsdp_config": {"fsdp_version": 2, "activation_checkpointing": true}}',
        "trainer",
        "MODEL --gpus 8xH100 --strategy fsdp --offload none --checkpointing full",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_becomes_the_options_it_means(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, kind, expected = FILES[name]
    (tmp_path / name).write_text(content)
    alone = "--gpus 1x" in expected
    assert main(["from-config", str(tmp_path / name), "--json", "--gpus", "H100" if alone else "8xH100"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == kind
    assert found["command"] == f"plan {expected}".replace("STACK", found["options"].get("stack", ""))


def test_a_plugin_that_keeps_no_logits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    plugin = "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n"
    for more, fused in (("", "true"), ("cut_cross_entropy: false\n", None)):
        path.write_text("base_model: x\nmicro_batch_size: 1\n" + plugin + more)
        assert main(["from-config", str(path), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["options"].get("fused-loss") == fused
        assert any("CutCrossEntropyPlugin" in line for line in found["approximated"]) is (fused is not None)


def test_fsdp_checkpoints_where_the_model_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "base_model: x\nfsdp_version: 2\nfsdp_config: {activation_checkpointing: true}\nqat: {group_size: 16}\n"
    )
    assert main(["from-config", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["options"]["checkpointing"] == "full"
    assert found["options"]["precision"] == "bf16-mixed", "bf16: auto is axolotl's default"
    assert any(line.startswith("qat") for line in found["approximated"])


def test_a_file_that_is_named_is_seen_from_the_folders_above(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples" / "jamba").mkdir(parents=True)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "z.json").write_text(
        '{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}'
    )
    path = tmp_path / "examples" / "jamba" / "a.yaml"
    path.write_text("base_model: x\ndeepspeed: configs/z.json\n")
    assert main(["from-config", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["options"]["strategy"], found["options"]["offload"]) == ("zero2", "none")
    assert any("DeepSpeed ignores it" in line for line in found["notes"])


def test_a_bare_no_is_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("compute_environment: LOCAL_MACHINE\ndistributed_type: NO\nmixed_precision: no\nnum_processes: 8\n")
    assert main(["from-config", str(path), "--json", "--gpus", "H100"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["gpus"], found["options"]["precision"]) == ("1xH100", "fp32")
    assert any("is one process" in line for line in found["notes"])


HOSTILE = ("--execute=evil.py", "$(touch x)", "a\nb", "\x1b[2J", "../" * 40 + "etc/passwd", "`id`")
PLACES = {
    "torchtune": (TUNE, "/tmp/Meta-Llama-3.1-8B/", "8B.yaml"),
    "torchtitan": (TITAN, "./assets/hf/Llama-3.1-8B", "8B.toml"),
    "litgpt": (LIT.replace("DEVICES", "1"), "checkpoints/meta-llama/Llama-2-7b-hf", "l.yaml"),
}


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("value", HOSTILE)
def test_values_stay_values(kind: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, place, name = PLACES[kind]
    quoted = json.dumps(value)
    content = content.replace(f'"{place}"', quoted) if f'"{place}"' in content else content.replace(place, quoted)
    (tmp_path / name).write_text(content)
    code = main(["from-config", str(tmp_path / name), "--plan", "--gpus", "1xH100"])
    out, err = capsys.readouterr()
    assert code in (2, 3), (out, err)
    assert "Traceback" not in err
    assert "\x1b[2J" not in out + err
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_spoilt_files_end_in_one_line_or_in_a_table() -> None:
    rng = random.Random(16)
    tables = [
        tomllib.loads(content) if name.endswith(".toml") else yaml.safe_load(content)
        for name, (content, _, _) in FILES.items()
    ]
    ends = {"read": 0, "refused": 0}
    for _ in range(700):
        content = spoilt(rng.choice(tables), rng)
        world = rng.choice((None, 1, 8))
        try:
            found = convert(content, "a.yaml", lambda path, key: {"zero_optimization": {"stage": 3}}, world=world)
            assert show.command(found) in show.text(found, str)
            json.dumps(show.document(found))
            tomllib.loads(show.toml(found))
        except PlanError:
            ends["refused"] += 1
            continue
        ends["read"] += 1
    assert min(ends.values()) > 150
