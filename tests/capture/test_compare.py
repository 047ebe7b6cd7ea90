"""`plan train.py --model MODEL`: MODEL is planned, and what the script does differently is listed."""

import json
from pathlib import Path

import pytest

from gpu_plan.cli import main

CONFIG = Path(__file__).resolve().parents[2] / "examples" / "tiny-llama"

EMBEDDING = 512 * 128
LAYER = 2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 352 + 2 * 128
AROUND = 2 * EMBEDDING + 128
"""That model's parameters by hand: attention's four and the MLP's three matrices, norms; embedding, head, last norm."""

OTHERWISE = f"""
import torch
from transformers import AutoConfig, AutoModelForCausalLM
config = AutoConfig.from_pretrained({str(CONFIG)!r}, num_hidden_layers=1)
model = AutoModelForCausalLM.from_config(config)
model.model.embed_tokens.requires_grad_(False)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
ids = torch.zeros(3, 24, dtype=torch.long)
model(input_ids=ids, labels=ids).loss.backward()
optimizer.step()
"""
UNKNOWN = OTHERWISE.replace("torch.optim.SGD", "torch.optim.Rprop")
ENDS = "print('nothing to do')\nraise SystemExit(3)\n"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "m"), "which script is --model m compared with?"),
        (("gpt2", "--model", "m", "--gpus", "8xH100"), "--model goes with a training script: plan train.py --model m"),
        (("gpt2", "--model", "m", "--execute", "t.py"), "MODEL gpt2 and --model m both name a model"),
        (("--model", "m", "--plan", "p.json", "--execute", "t.py"), "leave out --model, or --plan"),
    ],
)
def test_model_needs_a_script(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text(ENDS)
    code, out, err = run(capsys, *words)
    assert code == 2
    assert said in err
    assert not out


@pytest.mark.slow
def test_differences_are_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warnings = {}
    for name, content in (("otherwise", OTHERWISE), ("unknown", UNKNOWN), ("ends", ENDS)):
        script = tmp_path / f"{name}.py"
        script.write_text(content)
        words = (str(script), "--model", str(CONFIG), "--gpus", "1xH100", "--seq-len", "24", "--pin", "--json")
        code, out, err = run(capsys, *words, "--precision", "fp32", "--no-cache")
        assert code == 0, err
        document = json.loads(out)
        assert document["model"]["parameters"] == 4 * LAYER + AROUND
        warnings[name] = [line.removeprefix(f"{script}: ") for line in document["warnings"]]
    first = warnings["otherwise"]
    # One of four layers is there, and the embedding, tied to nothing, is not trained.
    planned, there = 4 * LAYER + AROUND, LAYER + AROUND
    assert first == [
        f"number of parameters is {planned:,} here, but {there:,} in the script",
        f"number of trained parameters is {planned:,} here, but {there - EMBEDDING:,} in the script",
        "optimizer is adamw here, but sgd in the script",
        "micro batch is 1 here, but 3 in the script",
    ]
    assert "optimizer is adamw here, but torch.optim.rprop.Rprop in the script" in warnings["unknown"]
    assert len(warnings["ends"]) == 1
    assert "cannot be compared with" in warnings["ends"][0]
    assert "--model" in warnings["ends"][0]
