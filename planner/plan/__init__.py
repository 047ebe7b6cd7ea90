"""The plan document and its files: plain values, versioned, read strictly. No torch, no search.

    document, figures, inference, timeline   `PlanDocument` and its parts; bytes are integers, seconds are floats
    saved                                    `SavedPlan`: the chosen plan with all that it was made for
    codec, files                             JSON to dataclasses and back; files whole or not at all (I/O)
    diff                                     what sets two plans apart
    drawn                                    what is drawn beside the document

The common tongue of planner, executor, reports and explorer: anybody may import it; it imports `workload` and no other
room.
"""
