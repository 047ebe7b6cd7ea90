"""A prompt script of one's own: tokens with their log-probabilities, which the built-in runner does not write.

plan MODEL --task infer --gpus cpu --context 64 --new-tokens 8 --execute examples/generate.py -- prompts.jsonl out.jsonl

The plan says where the model goes and how many prompts run at once; what is done survives a kill, and restarts.
Prompts are tokens here: {"input_ids": [1, 2, 3]} in each line.
"""

import argparse
from pathlib import Path

import torch
from transformers import GenerationConfig

from gpu_plan.executor.inference.options import Request
from gpu_plan.executor.inference.own import attempt, planned_model
from gpu_plan.executor.inference.prompting.progress import Journal, Progress
from gpu_plan.executor.inference.prompting.prompts import Prompt, read_prompts
from gpu_plan.executor.inference.prompting.ranks import ranks_of, share


def run_one(loaded, prompt: Prompt, new_tokens: int) -> dict[str, object]:
    ids = torch.tensor([prompt.input_ids], device=loaded.device)
    settings = GenerationConfig(
        max_new_tokens=new_tokens, do_sample=False, pad_token_id=0, output_logits=True, return_dict_in_generate=True
    )
    cache = loaded.cache()
    with torch.inference_mode():
        found = loaded.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=settings,
            **({} if cache is None else {"past_key_values": cache}),
        )
    tokens = found.sequences[0, ids.shape[1] :].tolist()
    chances = [
        torch.log_softmax(row[0].float(), -1)[token].item() for row, token in zip(found.logits, tokens, strict=True)
    ]
    return {"index": prompt.index, "output_ids": tokens, "log_probabilities": chances}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    prompts = read_prompts(args.prompts)
    progress = Progress(output=args.output.absolute(), count=len(prompts.items), job={"prompts": prompts.digest})
    if progress.finished and attempt() > 1:
        return
    with planned_model(Request(prompts=args.prompts, output=args.output.absolute())) as (loaded, job):
        ranks = ranks_of(job)
        if ranks.rank == 0:
            progress.begin(force=attempt() == 1)
        ranks.meet()
        done = progress.read()
        left = share([prompt for prompt in prompts.items if prompt.index not in done], ranks)
        ranks.meet()
        journal = Journal(progress, ranks.replica) if ranks.writes else None
        for prompt in left:
            result = run_one(loaded, prompt, job.new_tokens or 16)
            if journal is not None:
                journal.append([result])
    progress.finish()


if __name__ == "__main__":
    main()
