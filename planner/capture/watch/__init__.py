"""What the script's loop does, seen from outside.

    observe      what is set up around the model: optimizers, schedulers, clipping, who runs the loop
    step/        the first training step: forward, loss, backward, as the user wrote them
    passages     what runs before it in every iteration: a rollout, log-probabilities
    evaluations  passes before the first step that need not be run again
    evaluators   evaluations of sentence-transformers, which are not run at all
    bystanders   models on the planned device that the step never runs
    problem      an exception of the script, in one line
    described    what the script's models are, in a plan's words
    noticed      lines of the user's files at which memory is decided

`capture.window` and `capture.block` use them. Imports torch.
"""
