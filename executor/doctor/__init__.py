"""Looks before a launch: at the script, at the machine and, if asked, at a trial launch.

    script, flow/, rules/    a script's syntax tree, what it does in order, the rules it breaks; `examine_script`
    intent                   what the script is to run as, as far as plan and options tell
    facts, facts_gpus, clock what this machine is: `gather` (I/O)
    machine/                 judges it, pure
    trial/                   a small job on every rank
    finding, examination     what was found, as values that reports show

The command `plan doctor` joins them. Nothing here runs the user's code; torch only in `trial/`, inside the ranks.
"""
