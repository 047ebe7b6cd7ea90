"""The words to complete, as a script of each shell. Pure."""

from collections.abc import Callable, Iterable, Mapping

from gpu_plan.commands.completion.known import Option, Words

_HEAD = "# Made by `plan completion {shell}`: make it again after an update of gpu-plan.\n"


def quoted(text: str) -> str:
    """`text` as one word of bash, zsh and fish."""
    return "'" + text.replace("'", "'\\''") + "'"


def bash(words: Words) -> str:
    """A function for `complete -F`; what has no words of its own is a file name."""
    cases = [_bash_case("*", words.main), *(_bash_case(verb, options) for verb, options in words.verbs.items())]
    return (
        _HEAD.format(shell="bash")
        + "_plan() {\n"
        + "    local cur prev verb options values\n"
        + "    cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}\n"
        + '    if [ "$COMP_CWORD" -eq 1 ] && [[ $cur != -* ]]; then\n'
        + f'        COMPREPLY=($(compgen -W {quoted(" ".join(words.verbs))} -- "$cur") $(compgen -f -- "$cur"))\n'
        + "        return\n    fi\n    values=\n"
        + "    case $verb in\n"
        + "".join(cases[1:] + cases[:1])
        + "    esac\n"
        + '    if [ -n "$values" ]; then\n        COMPREPLY=($(compgen -W "$values" -- "$cur"))\n'
        + '    elif [[ $cur == -* ]]; then\n        COMPREPLY=($(compgen -W "$options" -- "$cur"))\n'
        + '    else\n        COMPREPLY=($(compgen -f -- "$cur"))\n    fi\n}\n'
        + "complete -o filenames -F _plan plan\n"
    )


def _bash_case(pattern: str, options: Iterable[Option]) -> str:
    listed = list(options)
    values = "".join(
        f"            {option.name}) values={quoted(' '.join(option.values))} ;;\n"
        for option in listed
        if option.values
    )
    names = quoted(" ".join(option.name for option in listed))
    choices = f"            case $prev in\n{values}            esac\n" if values else ""
    return f"        {pattern})\n            options={names}\n{choices}            ;;\n"


def zsh(words: Words) -> str:
    """A function of the completion system, as `_plan` in a folder of $fpath."""
    verbs = " ".join(quoted(verb) for verb in words.verbs)
    cases = [*(_zsh_case(verb, options) for verb, options in words.verbs.items()), _zsh_case("*", words.main)]
    return (
        "#compdef plan\n"
        + _HEAD.format(shell="zsh")
        + "_plan() {\n"
        + "    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
        + f"        compadd -- {verbs}\n        _files\n        return\n    fi\n"
        + "    case $words[2] in\n"
        + "".join(cases)
        + "    esac\n}\n"
        + 'if [ "$funcstack[1]" = "_plan" ]; then _plan "$@"; else compdef _plan plan; fi\n'
    )


def _zsh_case(pattern: str, options: Iterable[Option]) -> str:
    lines = [f"            {quoted(_zsh_spec(option))} \\\n" for option in options]
    return f"        {pattern})\n            _arguments -S \\\n{''.join(lines)}            '*:: :_files' ;;\n"


def _zsh_spec(option: Option) -> str:
    text = option.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    if not option.takes_value:
        return f"*{option.name}[{text}]"
    values = " ".join(value.replace(":", "\\:") for value in option.values)
    action = f"({values})" if values else "_files" if option.takes_file else " "
    return f"*{option.name}=[{text}]:{option.name.removeprefix('--')}:{action}"


def fish(words: Words) -> str:
    """One `complete` line for each verb and option."""
    lines = [_HEAD.format(shell="fish")]
    lines += [f"complete -c plan -n __fish_use_subcommand -a {quoted(verb)}\n" for verb in words.verbs]
    none = f"not __fish_seen_subcommand_from {' '.join(words.verbs)}"
    lines += [_fish_line(none, option) for option in words.main]
    for verb, options in words.verbs.items():
        lines += [_fish_line(f"__fish_seen_subcommand_from {verb}", option) for option in options]
    return "".join(lines)


def _fish_line(condition: str, option: Option) -> str:
    text = option.help.replace("\\", "\\\\").replace("'", "\\'")
    line = f"complete -c plan -n '{condition}' -l {option.name.removeprefix('--')} -d '{text}'"
    if option.values:
        line += f" -x -a {quoted(' '.join(option.values))}"
    elif option.takes_value:
        line += " -r" if option.takes_file else " -x"
    return line + "\n"


SCRIPTS: Mapping[str, Callable[[Words], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
