"""A plan as files, environment and a command. The disk is written by `write` alone.

    prepare, export                         from a job, or from a saved plan, to `files.LaunchFiles`
    target                                  `Target`: one launch in words that every engine understands
    engines/, accelerate/, deepspeed/       ways to launch; the two libraries' configuration files
    arguments, script_arguments, environment what the script and its ranks are told, and how
    not_applied                             what the launch cannot apply: said before it starts
    prompts                                 how an inference run is launched
    render, write                           files as text, on disk

Others start from `prepare` or `export`, and give `files.LaunchFiles` to `write`. Reads the planner's documents; no
torch.
"""
