"""What a run leaves in its folder, as frozen values. Plain data: read and written by others.

    rank    `RankRecord`, `rank-N.json`: what one rank says of itself; the runner writes it
    run     `RunRecord`, `run.json`: attempts and how they ended; the supervisor writes it
    whole   `WholeRun`: all of a run folder as one value; `executor.read_run` reads it

Reports, the explorer and `plan check --measured` read these. `rank` imports the standard library only, since ranks do;
the others the planner's documents at most.
"""
