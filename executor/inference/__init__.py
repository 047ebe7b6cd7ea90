"""Loads a model where its plan puts it, and runs prompts through it.

    start, session, generate, options   the built-in runner, `--execute @generate`: words to a session, checked first
    loading/, prompting/                weights to their places; batches of prompts through the model
    own                                 the same for scripts of one's own: `planned_model`, `attempt`
    job                                 what of a plan such a run needs: `InferenceJob`, `is_inference`. Pure
    early, preflight, replan            what is looked at before planning, and after it in a process of its own; what
                                        follows out of memory

`launch`, `supervise` and the commands use `job`, `preflight` and `replan`, and import no torch by it: torch is loaded
in the ranks and in the preflight's process.
"""
