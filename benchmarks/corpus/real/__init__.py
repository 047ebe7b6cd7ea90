"""Drawn scripts run for real on two CPU ranks with tiny models, against what a capture of the same script says.

cases    which scripts, with which words; the tiny models that stand for those of the hub
ranks    two ranks of one script, forked from a process that has imported the libraries already
run      both sides of every case; `python -m benchmarks.corpus.real.run`
"""
