"""Stand-ins for data and tokenizers that are not at hand, and the longest samples first."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from gpu_plan.cli import main
from gpu_plan.planner.capture.answers.lengths import Lengths, longest_first
from gpu_plan.planner.capture.parent import CaptureError, capture
from gpu_plan.planner.capture.request import CaptureRequest
from tests.capture.test_what_people_write import T4

SAMPLES = [torch.arange(5 + (number * 37) % 200) for number in range(300)]


def _collate(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)}


def test_the_longest_samples_come_first_and_the_typical_batch_is_told() -> None:
    lengths = Lengths()
    with longest_first(lengths):
        first = next(iter(DataLoader(SAMPLES, batch_size=4, shuffle=True, collate_fn=_collate)))
    assert lengths.sampled is not None
    assert first["input_ids"].shape == (4, lengths.sampled.longest)
    assert lengths.sampled.longest >= 203
    assert lengths.sampled.median < lengths.sampled.typical_batch < lengths.sampled.longest
    assert lengths.batch_size == 4


class Streamed(IterableDataset[torch.Tensor]):
    """Samples one after another, of which nobody knows how many there are."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from SAMPLES


def test_of_an_iterable_data_set_the_longest_of_the_first_samples_come_first() -> None:
    lengths = Lengths()
    with longest_first(lengths):
        batches = list(DataLoader(Streamed(), batch_size=4, collate_fn=_collate))
    assert lengths.sampled is not None
    assert batches[0]["input_ids"].shape == (4, lengths.sampled.longest)
    assert lengths.sampled.samples == 256
    assert sum(len(batch["input_ids"]) for batch in batches) == len(SAMPLES)


def test_what_an_iterable_data_set_raises_comes_where_its_sample_would() -> None:
    class Broken(Streamed):
        def __iter__(self) -> Iterator[torch.Tensor]:
            yield from SAMPLES[:6]
            raise LookupError("no seventh")

    with longest_first(Lengths()):
        batches = iter(DataLoader(Broken(), batch_size=4, collate_fn=_collate))
        assert len(next(batches)["input_ids"]) == 4
        with pytest.raises(LookupError, match="no seventh"):
            next(batches)


def test_a_batch_of_the_longest_is_padded_where_batches_are() -> None:
    """One sample is shorter, for a batch without padding has no mask; nothing is padded where samples are joined."""
    samples = [torch.ones(9 if number % 2 else 5, dtype=torch.long) for number in range(40)]

    def joined(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.cat(rows)[None]}

    for collate, shape in ((_collate, (4, 9)), (joined, (1, 36))):
        with longest_first(Lengths()):
            first = next(iter(DataLoader(samples, batch_size=4, collate_fn=collate)))["input_ids"]  # type: ignore[arg-type]
        assert first.shape == shape
        assert bool((first == 0).any()) == (collate is _collate)


def test_samples_of_one_length_and_pictures_keep_their_order() -> None:
    lengths = Lengths()
    with longest_first(lengths):
        for samples in ([torch.ones(7, dtype=torch.long)] * 9, [torch.rand(3, 4, 4) for _ in range(9)]):
            batches = list(DataLoader(samples, batch_size=3, collate_fn=_collate))  # type: ignore[arg-type]
            assert len(batches) == 3
            assert lengths.sampled is None


def test_a_stand_in_tokenizer_has_the_models_vocabulary_and_ids() -> None:
    transformers = pytest.importorskip("transformers")
    from gpu_plan.planner.capture.standin.tokenizers import make

    of_gpt2 = make(transformers.GPT2Config(), {"padding_side": "left"})
    assert len(of_gpt2) == 50257
    assert of_gpt2.eos_token_id == 50256
    assert of_gpt2.pad_token is None
    assert of_gpt2.padding_side == "left"
    assert of_gpt2.model_max_length == 1024
    assert len(of_gpt2("the model reads this")["input_ids"]) == 4
    of_qwen = make(transformers.Qwen2Config(), {})  # its config names none, its class does
    assert of_qwen.pad_token == "<pad>"
    assert len(of_qwen) == transformers.Qwen2Config().vocab_size
    assert make(transformers.LlamaConfig(), {}).pad_token is None
    of_bert = make(transformers.BertConfig(), {})
    pair = of_bert("the model", "reads this")
    assert len(pair["input_ids"]) == 2 + 2 + 3
    assert sum(pair["token_type_ids"]) == 3
    assert (of_bert.pad_token_id, of_bert.model_max_length) == (0, 512)
    turns = [{"role": "user", "content": "the model"}, {"role": "assistant", "content": "reads"}]
    assert "assistant reads" in of_gpt2.apply_chat_template(turns, tokenize=False)


SCRIPT = """
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling
from transformers import Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("openai-community/gpt2")
tokenizer.pad_token = tokenizer.eos_token
rows = load_dataset("nobody/knows")["train"].select(range(5000))
rows = rows.map(lambda x: tokenizer(x["story"], truncation=True, max_length=96), remove_columns=rows.column_names)
model = AutoModelForCausalLM.from_pretrained("openai-community/gpt2")
arguments = TrainingArguments("out", per_device_train_batch_size=4, report_to="none")
collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
Trainer(model, arguments, train_dataset=rows, data_collator=collator).train()
"""


@pytest.mark.slow
def test_a_script_whose_data_are_not_at_hand(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    asked = CaptureRequest(script=str(script), working_directory=str(tmp_path), device=T4, seconds=1200.0, standin=True)
    outcome, _ = capture(asked)
    assert outcome.facts is not None
    assert (outcome.facts.micro_batch, outcome.facts.seq_len) == (4, 96)
    data, tokenizer = outcome.facts.standins[1], outcome.facts.standins[0]
    assert "nobody/knows is a stand-in of 512 rows with the columns story (1024 words)" in data
    assert "openai-community/gpt2 is a stand-in of the model's 50,257 tokens" in tokenizer


@pytest.mark.slow
def test_without_the_option_what_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    assert main(["train.py", "--gpus", "1xT4"]) == 2
    assert "the tokenizer of openai-community/gpt2 is not at hand: --data standin" in capsys.readouterr().err


THROWN_AWAY = """
import torch
model = torch.nn.Linear(8, 8).cuda()
for _ in range(3):  # measured, not trained on
    model(torch.ones(6, 8).cuda()).sum().backward()
    model.zero_grad()
model = torch.nn.Sequential(model, torch.nn.Linear(8, 4).cuda())
assert torch.isfinite(torch.ones(2, 8).cuda().sum())
first, second = torch.optim.AdamW(model[0].parameters()), torch.optim.SGD(model[1].parameters())
optimizer = {optimizer}
for _ in range(2):
    model(torch.ones(3, 8).cuda()).sum().backward()
optimizer.step()
raise KeyError("never reached")
"""


@pytest.mark.slow
def test_gradients_that_are_thrown_away_are_no_part_of_the_step(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(THROWN_AWAY.format(optimizer="torch.optim.AdamW(model.parameters())").replace("first, sec", "#"))
    asked = CaptureRequest(script=str(script), working_directory=str(tmp_path), device=T4, seconds=1200.0)
    outcome, _ = capture(asked)
    facts = outcome.facts
    assert facts is not None
    assert (facts.class_name, facts.micro_batch, facts.accumulation_steps) == ("Sequential", 3, 2)
    assert facts.spec["num_parameters"] == 8 * 8 + 8 + 8 * 4 + 4


@pytest.mark.slow
def test_an_error_names_the_file_with_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    script = tmp_path / "train.py"
    script.write_text("import json\n\n\ndef load():\n    json.loads('{')\n\n\nload()\n")
    with pytest.raises(CaptureError) as caught:
        capture(CaptureRequest(script=str(script), working_directory=str(tmp_path), device=T4, seconds=1200.0))
    message = str(caught.value)
    assert message.startswith(f"{script}:5: JSONDecodeError: ")
    assert "\n" not in message
    kept = Path(message.rpartition("the whole traceback: ")[2])
    assert "json/decoder.py" in kept.read_text()


ON_THE_HOST = """
import torch
from torch.distributions import Categorical
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters())
chances = torch.softmax(model(torch.ones(4)), dim=-1)
drawn = Categorical(chances)
loss = -drawn.log_prob(drawn.sample()) * torch.tensor([1.0])
(loss + torch.nn.functional.mse_loss(chances.sum().view(1), torch.tensor([0.5]))).sum().backward()
optimizer.step()
"""


@pytest.mark.slow
def test_a_script_that_never_uses_the_gpu_is_planned_and_it_is_said(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ON_THE_HOST)
    outcome, _ = capture(CaptureRequest(script=str(script), working_directory=str(tmp_path), device=T4, seconds=1200.0))
    assert outcome.facts is not None
    assert outcome.facts.micro_batch == 1
    assert any("puts nothing on a GPU" in note for note in outcome.facts.notes)


def test_a_tokenizer_in_a_part_of_a_pipeline_is_at_hand(tmp_path: Path) -> None:
    """A pipeline's own folder has neither a config nor a tokenizer: its parts have, however few words they know."""
    from gpu_plan.planner.capture.standin.tokenizers import _is_here

    (tmp_path / "tokenizer_3").mkdir()
    (tmp_path / "tokenizer_3" / "tokenizer.json").write_text("{}")
    assert _is_here(tmp_path, {"subfolder": "tokenizer_3"})
    assert not _is_here(tmp_path, {"subfolder": None})
