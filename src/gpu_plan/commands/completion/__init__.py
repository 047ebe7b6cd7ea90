"""`plan completion SHELL`: a script that completes verbs, options and their values in bash, zsh or fish.

    command    the verb
    known      what there is to complete, read off the parsers
    shells     the same as a script of each shell

The scripts are whole in themselves: a key press starts no Python.
"""
