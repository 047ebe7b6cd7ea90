"""Shell scripts as text: nothing of them is run. Pure.

words      the commands of a script with its variables put in, the options among their words
lines      a command of a tool that says its job in options (`swift rlhf`, `llamafactory-cli train`)
launched   a training script that a launcher starts with TrainingArguments' options, `trl dpo`
"""
