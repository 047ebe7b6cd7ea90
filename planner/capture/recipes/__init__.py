"""Training scripts of recipes: TRL's own trainers on made-up data of given lengths, captured as anybody's script is.

    sft, dpo, orpo, cpo, simpo, kto, reward, distill, grpo, rloo    one recipe each, run as a script
    parts, rollouts                                     arguments, data and tokenizer that they share; completions

Each runs for real too: `python -m gpu_plan.planner.capture.recipes.dpo --model FOLDER --prompt-len 16 ...`.
"""
