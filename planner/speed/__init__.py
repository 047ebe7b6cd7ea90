"""Expected step time: operators, collectives, recomputation."""
