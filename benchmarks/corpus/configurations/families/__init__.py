"""Each family's keys, read by a few lines each, from their sources: it shares nothing with `plan from-config`.

    reading      what every reader takes, and what must come out
    launchers    DeepSpeed's and Accelerate's own files
    trainers     TrainingArguments, SFT of TRL
    axolotl, llamafactory, open_instruct, torchtune, torchtitan, litgpt, swift, unsloth    each its own keys

`READERS` has them by the family's name, as `expected` has its patterns.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.corpus.configurations.families.axolotl import axolotl
from benchmarks.corpus.configurations.families.launchers import accelerate, deepspeed, fragment
from benchmarks.corpus.configurations.families.litgpt import litgpt
from benchmarks.corpus.configurations.families.llamafactory import llamafactory, llamafactory_v1
from benchmarks.corpus.configurations.families.open_instruct import open_instruct
from benchmarks.corpus.configurations.families.reading import Content, Read
from benchmarks.corpus.configurations.families.swift import swift
from benchmarks.corpus.configurations.families.torchtitan import torchtitan
from benchmarks.corpus.configurations.families.torchtune import torchtune
from benchmarks.corpus.configurations.families.trainers import firefly, seq2seq, trainer, trl
from benchmarks.corpus.configurations.families.unsloth import unsloth

READERS: Mapping[str, Callable[[Content, Path, str], Read]] = {
    "axolotl": axolotl,
    "deepspeed": deepspeed,
    "fragment": fragment,
    "accelerate": accelerate,
    "llamafactory": llamafactory,
    "llamafactory_v1": llamafactory_v1,
    "open_instruct": open_instruct,
    "torchtune": torchtune,
    "torchtitan": torchtitan,
    "litgpt": litgpt,
    "swift": swift,
    "swift_other": swift,
    "unsloth": unsloth,
    "firefly": firefly,
    "seq2seq": seq2seq,
    "trl": trl,
    "trainer": trainer,
}
"""A file's table, its repository's root and its path there, to what must come out of it."""
