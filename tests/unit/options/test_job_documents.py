"""Job documents, read: what they mean, and one line for what makes no sense. No torch."""

from pathlib import Path

import pytest

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.foreign.as_toml import toml_table
from gpu_plan.planner.job.several.document import read_document
from gpu_plan.planner.options.several.given import Between, Does, Head
from gpu_plan.planner.options.several.read import read_job

POLICY = '[models.policy]\nmodel = "a/b"\ntrain = true\n'
REFERENCE = '[models.reference]\nmodel = "a/b"\n'
UPDATE = '[[phases]]\nname = "update"\ndoes = "train"\nmodels = ["policy"]\n'
SCORING = '[[phases]]\nname = "scoring"\ndoes = "log-probabilities"\nmodels = ["reference"]\n'
ROLLOUT = '[[phases]]\nname = "rollout"\ndoes = "generate"\nmodels = ["policy"]\n'
ENGINE = '[models.engine]\nmodel = "a/b"\nengine = "vllm"\n'


CUT = "padding_removed = true\nprompt_len = 1024\ncompletion_len = 3072\n"


def test_a_rank_cuts_its_samples_by_their_tokens() -> None:
    job = read_job(toml_table((CUT + POLICY + UPDATE + "max_tokens = 24000\nsamples = 64\n").encode()), "job.toml")
    cut = job.update.cut
    assert cut is not None
    # 262,144 tokens are eleven passes, the largest of six samples: more than the cap, as verl balances them.
    assert (cut.passes(4096), job.update.micro_batch) == (11, 6)
    shorter = job.shortened((128, 384))
    assert (shorter.lengths, shorter.update.seq_len) == ((128, 384), 512)
    assert (cut.passes(512), shorter.update.micro_batch) == (2, 32)
    assert cut.rows(1) == 64


def test_what_generates_keeps_room_for_the_longest() -> None:
    text = CUT + "usual_completion_len = 300\n" + POLICY + ROLLOUT + UPDATE + "prompt_len = 512\nmicro_batch = 4\n"
    job = read_job(toml_table(text.encode()), "job.toml")
    assert job.usual == (1024, 300)
    rollout, update = job.shortened((512, 300)).phases
    assert (rollout.prompt_len, rollout.completion_len) == (1024, 3072)
    assert (update.prompt_len, update.completion_len, update.micro_batch) == (256, 300, 4)


def read(text: str) -> object:
    return read_job(toml_table(text.encode()), "job.toml")


def test_a_document_means_its_models_and_phases() -> None:
    job = read_job(
        toml_table(
            (
                "prompt_len = 8\n"
                + REFERENCE
                + 'between = "host"\nprecision = "bf16"\n'
                + POLICY
                + 'strategy = "zero3"\nlora_rank = 8\npeft = "lora"\n'
                + ENGINE
                + "share = 0.5\nsleep = true\n"
                + SCORING
                + "completion_len = 24\nevery = 2\n"
                + UPDATE
                + 'micro_batch = 2\n[[phases]]\nname = "rollout"\ndoes = "generate"\nmodels = ["engine"]\n'
            ).encode()
        ),
        "job.toml",
    )
    assert [model.role for model in job.models] == ["policy", "reference", "engine"]
    assert job.anchor.words == (("strategy", "zero3"), ("peft", "lora"), ("lora-rank", "8"))
    reference, engine = job.of("reference"), job.engine
    assert (reference.between, reference.word("precision"), reference.head) == (Between.HOST, "bf16", Head.OWN)
    assert engine is not None
    assert engine.engine is not None
    assert (engine.engine.share, engine.engine.sleeps, engine.engine.mode) == (0.5, True, "colocate")
    scoring, update, rollout = job.phases
    assert (scoring.does, scoring.seq_len, scoring.repeats) == (Does.LOG_PROBABILITIES, 32, "every 2 steps")
    assert job.update is update
    assert (update.micro_batch, rollout.prompt_len, rollout.completion_len) == (2, 8, 512)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no models: add a table [models.policy]"),
        ("usual_prompt_len = 9\n" + POLICY + UPDATE, "about passes without padding: add padding_removed = true"),
        (CUT + "usual_prompt_len = 1025\n" + POLICY + UPDATE, "is more than the 1024 tokens of the longest sample"),
        (POLICY + UPDATE + "max_tokens = 9\n", "go together: write both"),
        (POLICY + UPDATE + "max_tokens = 9\nsamples = 2\nmicro_batch = 1\n", "leave one out"),
        (POLICY, "names no phases: add a table [[phases]]"),
        ("models = 3\n", "names no models"),
        (POLICY + 'phases = "update"\n', "'phases' is no key of it"),
        ("speed = 3\n" + POLICY + UPDATE, "'speed' is no key of it"),
        (POLICY.replace("train", "trian") + UPDATE, "'trian' is no key of it"),
        (POLICY.replace("true", '"yes"') + UPDATE, "write true or false"),
        (REFERENCE + SCORING, "no model is trained: set train = true of one"),
        (POLICY + REFERENCE + UPDATE, "reference computes in no phase"),
        (POLICY + REFERENCE + SCORING, "policy computes in no phase"),
        (POLICY + UPDATE.replace("train", "forward"), "policy is trained in no phase"),
        (POLICY + UPDATE + SCORING, "'reference' is no model of the job: policy"),
        (POLICY + REFERENCE + UPDATE + SCORING.replace("log-probabilities", "train"), "reference is frozen"),
        (POLICY + UPDATE.replace('"train"', '"trane"'), "is unknown: use train, forward"),
        (POLICY + UPDATE + UPDATE, "two phases are called 'update'"),
        (POLICY + UPDATE.replace('["policy"]', '"policy"'), "write names in a list"),
        (POLICY + UPDATE.replace('["policy"]', "[]"), "write names in a list"),
        (POLICY + UPDATE + "micro_batch = 0\n", "write a whole number from 1 on"),
        (POLICY + UPDATE + "micro_batch = true\n", "write a whole number from 1 on"),
        ("[models.policy]\ntrain = true\n" + UPDATE, "says no model: add model"),
        (POLICY + REFERENCE + 'optimizer = "sgd"\n' + SCORING + UPDATE, "is about training: add train = true"),
        (POLICY + "tensor_parallel = 2\n" + UPDATE, "add engine, or strategy"),
        (POLICY + REFERENCE + "share = 0.3\n" + SCORING + UPDATE, 'is about an engine: add engine = "vllm"'),
        (POLICY + ENGINE.replace("vllm", "tgi") + UPDATE, "engine = 'tgi' is unknown"),
        (POLICY + ENGINE + "share = 1.5\n" + UPDATE, "write a share above 0 and at most 1"),
        (POLICY + ENGINE + 'where = "server"\nsleep = true\n' + UPDATE, "need not sleep"),
        (POLICY + ENGINE + "copies = 2\n" + UPDATE, "copies are of a server"),
        (POLICY + 'reduce_dtype = "fp8"\n' + UPDATE, "use float32 or bfloat16"),
        (POLICY + ENGINE + 'strategy = "fsdp"\n' + UPDATE, "is not vLLM's"),
        (POLICY + ENGINE + "train = true\n" + UPDATE, "an engine trains nothing"),
        (POLICY + ENGINE + ENGINE.replace("engine]", "other]") + UPDATE, "are both engines"),
        (POLICY + ENGINE + UPDATE.replace('"policy"', '"policy", "engine"'), "does generate and sync, not train"),
        (POLICY + UPDATE + SCORING.replace("log-probabilities", "sync").replace("reference", "policy"), "has none"),
        (POLICY + 'head = "value"\n' + UPDATE + ROLLOUT, "generates nothing"),
        (POLICY.replace('"a/b"', '"a\\u001bb"') + UPDATE, "write a few words in quotes"),
        ('[models."a\\nb"]\nmodel = "a/b"\n' + UPDATE, "is no name of a model"),
        ("".join(POLICY.replace("policy", f"policy{n}") for n in range(9)) + UPDATE, "a job has 8 at most"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read(text)
    message = str(refused.value)
    assert said in message
    assert message.startswith("job.toml")
    assert message.isprintable()


def test_what_is_no_toml_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("models: 3\n")
    with pytest.raises(InputError, match="is not valid TOML"):
        read_document(path, "job.toml")
