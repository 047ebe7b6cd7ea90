"""Faults planted one at a time, and the fast tests that must notice: `python -m benchmarks.mutants`, or `make mutants`.

lists/      what is planted, as data: the file, its old and new text, the tests that belong to it
mutant      the lists read and checked against the present sources
session     the tests collected once, and a fork of that for each mutant
patch       a fault put into modules that are loaded: code is exchanged in place
copy, child for what cannot be: a copy of the project with one file changed, whose tests import everything anew
report      results/mutants.json and mutants.md
"""
