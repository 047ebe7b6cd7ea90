"""Pipeline stages of a class for which transformers has none: `accelerate.inference.prepare_pippy`.

torch.distributed.pipelining traces the whole model for one shape and cuts it between layers. A traced stage keeps no
KV cache: every token is a forward pass over the whole width, padded on the right, where a causal model does not look.
Each process reads the whole checkpoint before it keeps its stage.
"""

from typing import Any

from gpu_plan.executor.inference.job import InferenceJob
from gpu_plan.executor.inference.loading.checkpoint import Checkpoint
from gpu_plan.planner.errors import PreflightError


def layer_list(model: Any) -> tuple[str, int]:
    """Name and length of the longest list of modules: the model's layers. Empty and 0 where there is none."""
    from torch import nn

    lists = [(name, len(module)) for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=lambda found: found[1], default=("", 0))


def load_piped(job: InferenceJob, checkpoint: Checkpoint, kind: Any, common: dict[str, Any]) -> Any:
    """This rank's stage, with a `generate` of its own. PreflightError where the class cannot be traced."""
    import torch

    model = kind.from_pretrained(
        str(checkpoint.folder), dtype=getattr(torch, job.dtype or checkpoint.dtype), **common
    ).eval()
    model.config.use_cache = False
    try:
        return PipedModel(model, job)
    except Exception as error:  # torch.export raises what the model's own code raises
        why = " ".join(str(error).split())[:200]
        raise PreflightError(f"{type(model).__name__} cannot be traced into pipeline stages: {why}") from None


class PipedModel:
    """What `run_batch` needs of a model: `config`, `parameters` and `generate`."""

    def __init__(self, model: Any, job: InferenceJob) -> None:
        import torch
        from accelerate import PartialState
        from accelerate.inference import prepare_pippy

        self.config = model.config
        self.main_input_name = "input_ids"
        self._width, self._batch = int(job.context or 0), job.batch
        self._state: Any = PartialState(cpu=True) if job.on_cpu else PartialState()
        # The example is one micro batch, and there are as many of them as prompts: nothing is padded then.
        piped = prepare_pippy(
            model,
            split_points=_splits(model, job),
            example_kwargs={"input_ids": torch.zeros(1, self._width, dtype=torch.long)},
            num_chunks=self._batch,
            gather_output=False,
        )
        self._call = piped.forward
        self._stage = piped.pippy_stage._stage.submod

    def parameters(self) -> Any:
        """Those of this stage."""
        return self._stage.parameters()

    def generate(
        self, *, input_ids: Any, attention_mask: Any, generation_config: Any, logits_processor: Any, streamer: Any
    ) -> Any:
        """As transformers' own: prompts padded on the left, then the new tokens; greedy over processed scores."""
        import torch

        count, prompt_width = input_ids.shape
        lengths = attention_mask.sum(-1).tolist()
        rows = torch.full((self._batch, self._width), generation_config.pad_token_id)
        for row, length in enumerate(lengths):
            rows[row, :length] = input_ids[row, prompt_width - length :].cpu()
        streamer.put(input_ids)
        new: list[Any] = []
        ended = torch.zeros(count, dtype=torch.bool)
        stop = torch.tensor(generation_config.eos_token_id or [], dtype=torch.long)
        for step in range(generation_config.max_new_tokens):
            places = torch.tensor([length + step - 1 for length in lengths])
            token = self._next(rows, places, count, logits_processor, input_ids)
            token = torch.where(ended, generation_config.pad_token_id, token)
            new.append(token)
            streamer.put(token)
            rows[torch.arange(count), places + 1] = token
            ended |= torch.isin(token, stop)
            if bool(ended.all()):
                break
        return torch.cat([input_ids.cpu(), torch.stack(new, 1)], 1)

    def _next(self, rows: Any, places: Any, count: int, processors: Any, input_ids: Any) -> Any:
        """The next token of each prompt: chosen by the last stage, told to all."""
        import torch
        import torch.distributed as dist

        device = self._state.device
        found = self._call(input_ids=rows.to(device))
        token = torch.zeros(count, dtype=torch.long, device=device)
        if self._state.is_last_process:
            logits = found if torch.is_tensor(found) else found[0] if isinstance(found, tuple) else found.logits
            scores = logits[torch.arange(count, device=device), places.to(device)].float()
            token = processors(input_ids.to(device), scores).argmax(-1)
        dist.broadcast(token, src=self._state.num_processes - 1)
        return token.cpu()


def _splits(model: Any, job: InferenceJob) -> list[str]:
    """Names of the layers with which the second and later stages begin."""
    name, count = layer_list(model)
    stages = job.pipeline_parallel
    sizes = list(job.stages)
    if len(sizes) != stages or sum(sizes) != count:
        sizes = [count // stages + (stage < count % stages) for stage in range(stages)]
    return [f"{name}.{sum(sizes[:stage])}" for stage in range(1, stages)]
