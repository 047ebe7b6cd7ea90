"""Replayed ranks against Megatron-core's own GPTModel under its own schedules on gloo, for all cases of the test.

    pip install --no-deps megatron-core==0.16.1
    .venv/bin/python -m benchmarks.real.megatron_ranks

writes benchmarks/results/megatron_ranks.md. megatron-core is not among the dependencies; what is changed so that it
runs without CUDA stands in tests/support/ranks/megatron/shim.py.
"""

import importlib.metadata

import torch

from benchmarks.places import RESULTS
from tests.support.ranks.megatron.case import CASES, ITERATIONS, MegatronCase
from tests.support.ranks.megatron.replay import in_flight, measured, measured_in_flight, replay, replayed, run_all

PAGE = RESULTS / "megatron_ranks.md"
_HEAD = """# Megatron-core on gloo beside the replay

Written by `python -m benchmarks.real.megatron_ranks`: megatron-core {core}, torch {torch}, gloo, no GPU. GPTModel
with the local layers, 16-bit weights, no fusions, under Megatron-core's own schedules and DDP; hidden 64, 32 tokens,
two samples a micro batch. Bytes above what stood when the step began: the highest, and those that stand when the
forwards that come first are over, of the first step and of the second. The optimizer is not run (Megatron-core's
needs CUDA).

| job | rank | step | peak, real | peak, replayed | difference | in flight, real | in flight, replayed |
|---|---|---|---|---|---|---|---|
"""
_TAIL = """
Left out on both sides: scalars of 16 bytes and less, and the statistics of layer norms, which the CPU keeps in the
norm's 16 bits and CUDA in fp32.

What differs, and why:

- Experts: Megatron-core's dispatcher keeps the weights of the last micro batch's tokens and what it counted of them
  until the next one comes; these are not counted (of 4,096 tokens and 160 experts 1.3 MB a layer). Real routing is
  uneven: experts take their capacity here, padded, so that sizes are equal.
- Tensor and pipeline parallel ranks at once, first stage: 1,024 bytes more are replayed; not looked into.
- In flight: a real output is not sent and emptied yet where it is read (8,192 bytes of ranks that send), and with
  virtual stages the next tensor is not received yet.
- Virtual stages, pipeline ranks behind the first: one received tensor and its gradient stand for longer than is
  replayed. Nothing in Python names them; what does was not found. With NCCL it was not looked at.
"""


def main() -> None:
    """Writes the page."""
    found = {}
    for world in sorted({case.world for case in CASES}):
        found.update(run_all([case for case in CASES if case.world == world], world))
    lines = [line for case in CASES for line in _rows(case, found[case.label()])]
    head = _HEAD.format(core=importlib.metadata.version("megatron-core"), torch=torch.__version__)
    PAGE.write_text(head + "\n".join(lines) + "\n" + _TAIL, encoding="utf-8")


def _rows(case: MegatronCase, ranks: tuple[dict[str, object], ...]) -> list[str]:
    lines = []
    each = case.world // case.pipeline
    for number, values in enumerate(ranks):
        stream, place = replay(case, number // each)
        for step in range(ITERATIONS):
            real, ours = measured(values, case, step)["peak"], replayed(stream, case, step)["peak"]
            standing = measured_in_flight(values, case, place, step), in_flight(stream, case, place, step)
            shown = f"{ours - real:+,} ({(ours / real - 1):+.2%})" if ours != real else "0"
            lines.append(
                f"| {case.label()} | {number} | {step + 1} | {real:,} | {ours:,} | {shown} |"
                f" {standing[0]:,} | {standing[1]:,} |"
            )
    return lines


if __name__ == "__main__":
    main()
