"""Gradients of tied weights under FSDP2: what a later group reduces is added to what the root has reduced."""

from tests.support.ranks.case import RankCase
from tests.support.ranks.replay import stream_of


def test_the_tied_embeddings_shard_of_gradients_stands_once() -> None:
    """LFM2's root holds the final norm, by a name that its FSDP plan does not have, and the tied head. Real ranks peak
    65,536 bytes, one shard of [512, 64] in fp32 over two, below what was replayed before."""
    stream = stream_of(RankCase(architecture="lfm2-moe", strategy="fsdp_ep", expert_parallel=2), 2)
    step = stream.step_segments[0]
    standing: set[int] = set()
    for sign, tensor, segment in zip(stream.event_sign, stream.event_tensor, stream.event_segment, strict=True):
        if segment >= step:
            break
        (standing.add if sign > 0 else standing.discard)(int(tensor))
    first = len(stream.fixed) - len(stream.labels)
    placed = [number - first for number in standing if number >= first]
    kept = {stream.label_modules[i] for i in placed if stream.labels[i] == "reduce-scatter output"}
    assert "model.layers.0" in kept
    assert "model.embed_tokens" not in kept
