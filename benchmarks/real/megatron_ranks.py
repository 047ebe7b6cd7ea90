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
from tests.support.ranks.megatron.replay import (
    Values,
    in_flight,
    least,
    measured_in_flight,
    replay,
    replayed,
    run_often,
)

PAGE = RESULTS / "megatron_ranks.md"
_HEAD = """# Megatron-core on gloo beside the replay

Written by `python -m benchmarks.real.megatron_ranks`: megatron-core {core}, torch {torch}, gloo, no GPU. GPTModel
with the local layers, 16-bit weights, no fusions, under Megatron-core's own schedules and DDP; hidden 64, 32 tokens,
two samples a micro batch. The highest bytes of the first step and of the second, above what stood when the first
began; and those that stand when the forwards that come first are over, above what stood when that step began. The
optimizer is not run (Megatron-core's needs CUDA).

| job | rank | step | peak, real | peak, replayed | difference | in flight, real | in flight, replayed |
|---|---|---|---|---|---|---|---|
"""
_TAIL = """
Left out on both sides: scalars of 16 bytes and less, and the statistics of layer norms, which the CPU keeps in the
norm's 16 bits and CUDA in fp32.

Of three launches the least is told: gloo's threads can free a tensor where the profiler does not see it.
The peaks of both steps are above what stood when the first began, so that what dispatchers keep from one micro batch to
the next is among them.

What differs, and why:

- Experts, 128 bytes: the dispatcher keeps how many tokens came to each expert (8 bytes an expert and layer).
- Experts run again: 128 bytes so, and 512 more: the weights of the pass that is run again (64 tokens of 4 experts in 16
  bits, moe_utils.py: apply_router_token_dropping: routing_probs * final_map), which the layer's dispatcher names
  (`self.probs`) beyond the layer's backward pass, where the replay lets go of them as that begins. Each dispatcher
  names what it routed by when it was run again, hence that pass's graph, and by it the layer's input and its gradient,
  until its next forward: 18,208 bytes a layer between two steps here, by the profiler's own list (two tensors of a
  sample's hidden state). A step begins with that much more, and its peak is what it was in the first.
- In flight: a real output is not sent and emptied yet where it is read (8,192 bytes of ranks that send), and with
  virtual stages the next tensor is not received yet.
"""


def main() -> None:
    """Writes the page."""
    found = {}
    for world in sorted({case.world for case in CASES}):
        found.update(run_often([case for case in CASES if case.world == world], world))
    lines = [line for case in CASES for line in _rows(case, found[case.label()])]
    head = _HEAD.format(core=importlib.metadata.version("megatron-core"), torch=torch.__version__)
    PAGE.write_text(head + "\n".join(lines) + "\n" + _TAIL, encoding="utf-8")


def _rows(case: MegatronCase, launches: list[tuple[Values, ...]]) -> list[str]:
    lines = []
    each = case.world // case.pipeline
    for number in range(case.world):
        stream, place = replay(case, number // each)
        for step in range(ITERATIONS):
            real, ours = least(launches, number, case, step), replayed(stream, case, step)["peak"]
            seen = min(measured_in_flight(values[number], case, place, step) for values in launches)
            standing = seen, in_flight(stream, case, place, step)
            shown = f"{ours - real:+,} ({(ours / real - 1):+.2%})" if ours != real else "0"
            lines.append(
                f"| {case.label()} | {number} | {step + 1} | {real:,} | {ours:,} | {shown} |"
                f" {standing[0]:,} | {standing[1]:,} |"
            )
    return lines


if __name__ == "__main__":
    main()
