"""Ways out of a captured script: tried from inside, looked for from outside.

inside/   the script that tries them, one after another, and its neighbours by subject; the standard library alone
outside   what could be reached, as it was and as it is after; the table of what happened
"""
