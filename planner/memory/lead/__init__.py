"""How far a rank's host is ahead of its device: what is queued on streams, played by the seconds of a step.

    log           `Log`: launches, collectives, waits and frees in the order in which the host queues them
    pace          `Pace`, `Paces`: seconds under one bound of every rate, and the bounds of both sides
    play          one run of a log, in seconds; compiled (`_streams.c`) where that was built
    history       `History`: when what waits can be handed out again, of a rank

Reads nothing of strategies; schedules that need no seconds are `gpu_plan.planner.memory.schedule`.
"""
