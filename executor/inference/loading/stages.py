"""Pipeline stages of transformers, mended: where each ends, and a KV cache that is right on later stages.

transformers' distributed/pipeline_parallel.py (5.23) gives each rank a run of `base_model.layers`, but the model asks
its cache for the length of layer 0 (`Cache.get_seq_length`), which only the first stage fills: on later stages every
decoded token then stands at position 0 and `generate` returns other tokens, without a word. `StageCache` answers from
a layer that the stage has.
"""

from collections.abc import Sequence
from typing import Any


def stage_of(model: Any) -> Any | None:
    """The PipelineStage of a model that is one; None for a whole model."""
    return getattr(model, "_pp_stage", None)


def place_stages(layers: Sequence[int]) -> None:
    """From now on stages have these numbers of layers; the remainder is not all the last one's."""
    from transformers.distributed.pipeline_parallel import PipelineStage

    original = getattr(PipelineStage, "_plan_original", PipelineStage.layer_range_for_rank)
    PipelineStage._plan_original = original

    def layer_range_for_rank(self: Any, rank: int, num_layers: int) -> tuple[int, int]:
        if len(layers) != self.pp_size or sum(layers) != num_layers:
            return original(self, rank, num_layers)  # type: ignore[no-any-return]
        start = sum(layers[:rank])
        return start, start + layers[rank]

    PipelineStage.layer_range_for_rank = layer_range_for_rank


class StageCache:
    """Makes a DynamicCache whose questions about layers of other stages are answered by one of its own."""

    @staticmethod
    def of(model: Any, stage: Any) -> Any:
        from transformers import DynamicCache

        config = model.config.get_text_config(decoder=True)
        first, last = stage.layer_range_for_rank(stage.pp_rank, config.num_hidden_layers)

        class _Cache(DynamicCache):  # type: ignore[misc]
            def _own(self, layer: int) -> int:
                if first <= layer < last or layer >= len(self.layers):
                    return layer
                alike = [i for i in range(first, last) if type(self.layers[i]) is type(self.layers[layer])]
                return (alike or [first])[0]

            def get_seq_length(self, layer_idx: int = 0) -> int:
                return super().get_seq_length(self._own(layer_idx))  # type: ignore[no-any-return]

            def get_query_offset(self, layer_idx: int = 0) -> Any:
                return super().get_query_offset(self._own(layer_idx))

            def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
                return super().get_mask_sizes(query_length, self._own(layer_idx))  # type: ignore[no-any-return]

        return _Cache(config=config)
