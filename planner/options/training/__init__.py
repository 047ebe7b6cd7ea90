"""From option words to a Workload: values checked, defaults filled in, every origin noted.

    given            what was given, as values
    reading          words to those values; what makes no sense is refused before any work is done
    groups           the strategy that degrees make of another
    contradictions   options and settings about what is not there
    adapters         LoRA and its kin, and the base below them
    defaults         what a value is where nobody said
    workload         all of it as a Workload, for a cluster and a model

No torch. `job` and whoever reads options take `reading`, `given` and `workload`.
"""
