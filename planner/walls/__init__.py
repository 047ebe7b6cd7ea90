"""Walls around code that is not ours: what it writes goes nowhere, and nothing outside of it can be reached.

    guest            what a process does that is to run a user's code: goes behind them, is told little, answers
    behind           puts this process behind the best walls that the machine offers, and says which
    processes/       the warden in front of the walls, who ends all that stands behind them; limits on all of it
    namespaces       own mounts, processes, network, IPC and users; `view` is what is seen of the file systems, from
                     `mounts`, the kernel's list of them
    landlock         where namespaces are not to be had: what may be opened for writing, connected to and signalled
    system_calls     under both, what may be asked of the kernel at all: `filter` assembles the rules
    privileges       capabilities, limits; `environment` what the code is told of its surroundings
    kernel           numbers and calls that Python has no names for

Standard library only, and Linux only; nothing here knows what is run behind the walls. Others import `guest`,
`behind` and `processes`.
"""
