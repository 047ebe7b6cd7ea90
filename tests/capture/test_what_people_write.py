"""What training scripts do that a capture once fell over: fp16, accumulation, evaluation first, wrapping by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.capture.parent import CaptureError, capture
from gpu_plan.planner.capture.request import CapturedFacts, CaptureRequest, PlannedDevice, ShardingFacts
from gpu_plan.planner.capture.sharding.own import Sharding, Types
from gpu_plan.planner.capture.watch.problem import described
from gpu_plan.planner.capture.workload import natural_regime, overlay
from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.events import Kind, Mark
from gpu_plan.planner.trace.storage import load

T4 = PlannedDevice(
    name="Tesla T4", total_bytes=15 * 10**9, capability_major=7, capability_minor=5, sm_count=40, bf16=False
)
A100 = PlannedDevice(name="A100", total_bytes=80 * 10**9, capability_major=8, sm_count=108)

EVERYTHING = """
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

device = torch.accelerator.current_accelerator()
assert device.type == "cuda" and torch.accelerator.is_available()
accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=3)
assert accelerator.device.type == "cuda"
model = AutoModelForCausalLM.from_pretrained("openai-community/gpt2", dtype=torch.float32, trust_remote_code=True)
assert model.config._name_or_path == "openai-community/gpt2"
head = torch.nn.Linear(8, 2).to(device)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
ids = torch.randint(0, 100, (2, 16), device=device)
head.eval()
with torch.no_grad():
    for _ in range(400):
        head(torch.zeros(4, 8, device=device))
for _ in range(3):  # in evaluation mode, as from_pretrained leaves it
    with accelerator.accumulate(model):
        loss = model(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
"""


def _request(script: Path, **changes: object) -> CaptureRequest:
    asked = CaptureRequest(script=str(script), working_directory=str(script.parent), device=T4, seconds=1200.0)
    return replace(asked, **changes)  # type: ignore[arg-type]


@pytest.mark.slow
def test_fp16_accumulation_and_evaluation_first(tmp_path: Path) -> None:
    script = tmp_path / "everything.py"
    script.write_text(EVERYTHING)
    outcome, content = capture(_request(script))
    facts = outcome.facts
    assert facts is not None
    assert (facts.precision, facts.accumulation_steps, facts.micro_batch, facts.seq_len) == ("fp16-mixed", 3, 2, 16)
    assert facts.clipping == 1.0
    assert any(note.startswith("399 evaluation passes") for note in facts.notes)
    trace = load(content)
    gradients = [
        (position, int(subject))
        for position, (kind, subject) in enumerate(zip(trace.kind, trace.subject, strict=True))
        if kind == Kind.GRADIENT
    ]
    # Once each, and within the pass that was recorded: later passes of the accumulation add to them.
    trained = [index for index, parameter in enumerate(trace.parameters) if not parameter.name.startswith("models.1")]
    assert len(trained) == len(trace.parameters) - 2 == 148
    assert sorted(subject for _, subject in gradients) == trained
    assert max(position for position, _ in gradients) < trace.mark_position(Mark.BACKWARD_END)


LOOP = """
import torch
from torch.distributed import init_process_group
{wrapping}
init_process_group("nccl")
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)).cuda()
model = {wrapped}
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.ones(4, 64).cuda()).sum().backward()
optimizer.step()
"""
WRAPPERS = {
    "ddp": ("from torch.nn.parallel import DistributedDataParallel as DDP", "DDP(model)"),
    "fsdp1": ("from torch.distributed.fsdp import FullyShardedDataParallel as FSDP", "FSDP(model)"),
    "fsdp": ("from torch.distributed.fsdp import fully_shard", "fully_shard(model)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", WRAPPERS)
def test_a_loop_that_wraps_its_model_has_its_strategy(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrapping, wrapped = WRAPPERS[strategy]
    Path("loop.py").write_text(LOOP.format(wrapping=wrapping, wrapped=wrapped))
    assert main(["loop.py", "--gpus", "2xA100-80GB", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {plan["strategy"]["name"] for plan in document["plans"]} == {strategy}
    assert document["workload"]["basis"]["strategy"] == "captured"


FACTS = CapturedFacts(class_name="GPT", optimizer="adamw", wrapper="DistributedDataParallel")


def test_a_wrapper_decides_over_several_devices_alone() -> None:
    nothing = read_given({}, [])
    assert overlay(nothing, FACTS, "train.py", 8).strategy == "ddp"
    assert overlay(nothing, FACTS, "train.py", 1).strategy is None
    assert overlay(nothing, replace(FACTS, wrapper=""), "train.py", 8).strategy is None
    assert overlay(nothing, replace(FACTS, wrapper="fully_shard"), "train.py", 8).strategy == "fsdp"
    assert (
        overlay(read_given({"strategy": "hsdp"}, []), replace(FACTS, wrapper="fully_shard"), "t.py", 8).strategy
        == "hsdp"
    )
    with pytest.raises(
        UsageError, match=r"--strategy fsdp: train\.py wraps its model in DistributedDataParallel itself"
    ):
        overlay(read_given({"strategy": "fsdp"}, []), FACTS, "train.py", 8)


def test_an_exception_is_told_with_its_cause() -> None:
    def raised(*, plainly: bool) -> BaseException:
        try:
            try:
                raise ModuleNotFoundError("No module named 'flash_attn'")
            except ModuleNotFoundError as cause:
                if plainly:
                    raise ImportError("cannot load the model") from cause
                raise RuntimeError(f"Failed to import it (look up to see its traceback):\n{cause}") from cause
        except (ImportError, RuntimeError) as problem:
            return problem

    caused = "ImportError: cannot load the model; caused by ModuleNotFoundError: No module named 'flash_attn'"
    assert described(raised(plainly=True)) == caused
    assert described(raised(plainly=False)) == (
        "RuntimeError: Failed to import it (look up to see its traceback): No module named 'flash_attn'"
    )
    assert described(AssertionError()) == "AssertionError"
    hidden = ValueError("told")
    hidden.__context__, hidden.__suppress_context__ = KeyError("aside"), True
    assert described(hidden) == "ValueError: told"


FLASH = """
import torch
from transformers import AutoConfig, AutoModelForCausalLM

config = AutoConfig.for_model(
    "llama", vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2
)
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="flash_attention_2").cuda()
optimizer = torch.optim.AdamW(model.parameters())
ids = torch.randint(0, 100, (2, 16), device="cuda")
model(input_ids=ids, labels=ids).loss.backward()
optimizer.step()
"""

POLICY = """
import torch
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

torch.distributed.init_process_group()
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
assert isinstance(model, FSDPModule) and type(model).__name__ == "Sequential"
assert all(str(parameter.placements) == "(Shard(dim=0),)" for parameter in model.parameters())
model.set_requires_gradient_sync(True)
model.unshard(async_op=True).wait()
optimizer = torch.optim.AdamW(model.parameters())
model(torch.zeros(4, 64, device="cuda")).sum().backward()
optimizer.step()
"""


@pytest.mark.slow
def test_flash_attention_needs_no_package_to_be_planned(tmp_path: Path) -> None:
    script = tmp_path / "flash.py"
    script.write_text(FLASH)
    facts = capture(_request(script, device=A100))[0].facts
    assert facts is not None
    assert facts.attention == "flash"


@pytest.mark.slow
def test_a_policy_of_mixed_precision_is_followed(tmp_path: Path) -> None:
    script = tmp_path / "policy.py"
    script.write_text(POLICY)
    outcome, content = capture(_request(script, device=A100, world_size=2))
    facts = outcome.facts
    assert facts is not None
    assert facts.precision == "bf16-mixed"
    assert facts.sharding == ShardingFacts(computed="bfloat16", reduced="float32")
    trace = load(content)
    assert {parameter.dtype for parameter in trace.parameters} == {"bfloat16"}
    # What goes into the model is cast as its parameters are.
    assert any(one.endswith(", 64] bfloat16") for one in trace.tensor_shape)
    assert natural_regime(facts).weights == "bfloat16"


DEFAULTS = """
import torch
from torch import nn

{default}
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4)){moved}
optimizer = torch.optim.Adam(model.parameters())
loader = torch.utils.data.DataLoader(torch.zeros(64, 64, device="cpu"), batch_size=8, shuffle=True)
for batch in loader:
    labels = {labels}
    nn.functional.cross_entropy(model(batch.type(torch.cuda.FloatTensor)), labels).backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("default", "moved", "labels"),
    [
        ('torch.set_default_device("cuda")', "", "torch.randint(0, 4, (8,))"),
        ('torch.set_default_tensor_type("torch.cuda.FloatTensor")', "", "torch.zeros(8, dtype=torch.int64)"),
        ("", ".cuda()", "torch.cuda.LongTensor([0] * 8)"),
    ],
)
def test_new_tensors_on_the_gpu_by_default(default: str, moved: str, labels: str, tmp_path: Path) -> None:
    script = tmp_path / "defaults.py"
    script.write_text(DEFAULTS.format(default=default, moved=moved, labels=labels))
    facts = capture(_request(script, device=A100))[0].facts
    assert facts is not None
    assert (facts.micro_batch, facts.optimizer, facts.spec["num_parameters"]) == (8, "adamw", 64 * 32 + 32 + 32 * 4 + 4)
    assert not any("puts nothing on a GPU" in note for note in facts.notes)


REFUSED = """
import torch
{text}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torch.eye(4).to_sparse().cuda()", r"puts a sparse tensor \(torch.sparse_coo\) on the GPU"),
        (
            "from torch.distributed.tensor.parallel import parallelize_module\n"
            "parallelize_module(torch.nn.Linear(2, 2), None, None)",
            "shards its layers over a mesh by tensor parallel itself",
        ),
        (
            "from torch.distributed.optim import ZeroRedundancyOptimizer\n"
            "ZeroRedundancyOptimizer(torch.nn.Linear(2, 2).parameters(), torch.optim.Adam)",
            "its ZeroRedundancyOptimizer keeps a part of the state on each rank",
        ),
        (
            "from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy\n"
            "FullyShardedDataParallel(torch.nn.Linear(2, 2), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)",
            "its own FSDP shards by SHARD_GRAD_OP, of which no plan is made",
        ),
    ],
)
def test_what_no_plan_follows_is_named(text: str, said: str, tmp_path: Path) -> None:
    script = tmp_path / "refused.py"
    script.write_text(REFUSED.format(text=text))
    with pytest.raises(CaptureError, match=said):
        capture(_request(script, device=A100, world_size=2))


SHARDED = replace(FACTS, wrapper="fully_shard", precision="bf16-mixed")


def test_what_ones_own_fsdp_says_is_planned() -> None:
    nothing = read_given({}, [])
    own = replace(SHARDED, sharding=ShardingFacts(computed="bfloat16", reduced="float32", kept=True))
    planned = overlay(nothing, own, "train.py", 8)
    assert (planned.strategy, planned.offload) == ("fsdp", Offload.NONE)
    assert dict(planned.settings) == {"dtype.reduce": "float32", "fsdp.reshard_after_forward": "false"}
    asked = overlay(read_given({}, ["dtype.reduce=bfloat16"]), own, "train.py", 8)
    assert dict(asked.settings)["dtype.reduce"] == "bfloat16"
    onto_the_host = replace(SHARDED, sharding=ShardingFacts(computed="bfloat16", offloaded=True))
    assert overlay(nothing, onto_the_host, "train.py", 8).offload is Offload.ALL
    in_copies = replace(SHARDED, sharding=ShardingFacts(computed="bfloat16", replicas=2))
    assert (
        overlay(nothing, in_copies, "train.py", 8).strategy,
        overlay(nothing, in_copies, "t.py", 8).dp_replicate,
    ) == (
        "hsdp",
        2,
    )
    with pytest.raises(UsageError, match="by a policy of its own FSDP, which is planned for two devices or more"):
        overlay(nothing, own, "train.py", 1)


def test_policies_that_differ_are_refused() -> None:
    own = Sharding()
    own.types = [Types(computed="torch.bfloat16"), Types(computed="torch.float16")]
    with pytest.raises(InputError, match=r"computes in several types \(bfloat16, float16\), of which no plan is made"):
        own.facts()
