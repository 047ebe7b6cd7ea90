"""How far a rank's host is ahead of its device: what is queued on streams, played by the seconds of a step.

    log           `Log`: launches, collectives, waits and frees in the order in which the host queues them
    pace          `Pace`, `Paces`: seconds under one bound of every rate, and the bounds of both sides
    play          one run of a log, in seconds
    schedules     `Schedule`: how far the host may be ahead where nothing is known of seconds
    until         what the host knows to be done in each of them, by code alone
    history       `History`: when what waits can be handed out again, of a rank
    compiled      `_streams.c`, where it was built: the loops of `play` and `until`

Reads nothing of strategies, which queue through `gpu_plan.planner.memory.schedule`.
"""
