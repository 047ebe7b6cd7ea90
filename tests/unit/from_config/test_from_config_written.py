"""What was written is read back: a proposed configuration, and what a plan is exported as."""

import json
from pathlib import Path

import pytest

from gpu_plan.executor.launch.export import export
from tests.support.configuration_files import words
from tests.support.launch_plans import job, saved


def test_kind_overrides_and_toml_is_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("distributed_type: FSDP\nbase_model: x\nfsdp_config: {fsdp_version: 2}\nnum_processes: 8\n")
    code, _, _ = words(path, capsys, "--kind", "accelerate", "--gpus", "H100", "--toml", "-o", str(tmp_path / "plan"))
    assert code == 0
    (tmp_path / "pyproject.toml").write_text((tmp_path / "plan").read_text())
    from gpu_plan.planner.options.config import job_options
    from gpu_plan.planner.options.given.configured import configured

    found = job_options(tmp_path)
    assert found is not None
    job = configured(found)
    assert job.gpus == "8xH100"
    assert job.options == {"strategy": "fsdp", "offload": "none", "precision": "fp32", "stack": "accelerate"}


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "fp16-mixed"])
@pytest.mark.parametrize(
    ("strategy", "offload", "gpus"),
    [
        ("single", "none", "1xH100"),
        ("ddp", "none", "8xH100"),
        ("fsdp", "none", "8xH100"),
        ("fsdp", "all", "2x8xH100"),
        ("fsdp1", "none", "8xH100"),
        ("hsdp", "all", "2x8xH100"),
        ("zero1", "optimizer", "8xH100"),
        ("zero2", "none", "2x8xH100"),
        ("zero3", "none", "8xH100"),
        ("zero3", "all", "8xH100"),
    ],
)
def test_what_is_exported_is_read_back(
    strategy: str, offload: str, gpus: str, precision: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("from accelerate import Accelerator\nAccelerator().accumulate(model)\n")
    plan = saved(strategy, gpus, micro=4, steps=2, offload=offload, precision=precision)
    hosts = {"hosts": ("a", "b")} if gpus.startswith("2x") else {}
    launch = export(job(plan, script, **hosts), None, engine="accelerate", folder=tmp_path)
    for name, content in launch.files.items():
        (tmp_path / name).write_text(content)
    config = next(name for name in launch.files if name.endswith(".yaml"))
    code, out, err = words(tmp_path / config, capsys, "--json", "--gpus", "H100")
    assert code == 0, err
    found = json.loads(out)
    options = found["options"]
    assert (options["strategy"], options.get("offload", "none")) == (strategy, offload)
    assert options["precision"] == precision
    assert found["gpus"] == gpus
    assert not found["approximated"]
    assert set(found["settings"]) <= {"fsdp.reshard_after_forward", "clip.max_norm"}
    if strategy.startswith("zero"):
        assert found["settings"]["clip.max_norm"] == "0.0", "nobody asked for clipping"
        assert (options["micro-batch"], options["grad-accum"]) == ("4", "2")
