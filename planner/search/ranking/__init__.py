"""Which plan goes first, by rules that are written down.

`ratio` bounds how many times as long one plan takes as another, what both share cancelled; `rules` orders plans;
`words` says the rules, and in one sentence with numbers why the first plan won over the second.
"""
