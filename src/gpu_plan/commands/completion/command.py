"""`plan completion SHELL`: a completion script for bash, zsh or fish, to be read by the shell when it starts.

bash: plan completion bash > ~/.local/share/bash-completion/completions/plan; zsh: plan completion zsh > a folder of
$fpath, as _plan; fish: plan completion fish > ~/.config/fish/completions/plan.fish.
"""

import argparse

from gpu_plan.planner.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")


def run(args: argparse.Namespace) -> int:
    """Print the script to stdout."""
    from gpu_plan.commands.completion.known import known_words
    from gpu_plan.commands.completion.shells import SCRIPTS

    print(SCRIPTS[args.shell](known_words()), end="")
    return ExitCode.OK
