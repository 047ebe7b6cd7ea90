"""Strategies: functions from a traced step to the stream that one rank sees.

Each strategy is a file or, where it takes several, a folder: `fsdp1/`, `fsdp2/`, `zero/`. `registry` lists them, `base`
says what every strategy is given and gives back, and what several share stands beside it: the optimizer's part of a
rank's stream, the times at which modules run, RAM of the node.

Others find strategies through `registry`. Reads traces, builds streams of `planner.memory`, describes work in the words
of `planner.speed.model`; knows neither devices nor ranking, and imports no torch. A strategy mirrors real code, which
it names.
"""
