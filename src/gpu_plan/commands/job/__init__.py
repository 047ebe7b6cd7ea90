"""What every way to ask for the main job has in common: `plan`, `--sweep`, `--execute`, other verbs, the Python API.

    asking    parsed options to a request, and to the plans that answer it; progress notes on stderr
    points    the points of a sweep, each a job of its own
    output    formats and files: refused before the work where they make no sense, written after it
    plots     `--plot [KIND:]FILE`

Imported by the verbs and by `gpu_plan.api`; reports and matplotlib only where something is written.
"""
