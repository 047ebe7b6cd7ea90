"""What the hooks tell, as numbers: pure, no clock and no torch but for values already at hand.

    ledger, rounds   optimizer steps and their summary; which steps make one step of the job
    batches          how large a batch is, by the shapes a model is called with
    losses           the step's loss without making the device wait
    not_finite       ends a rank whose loss is no finite number, where that was asked for

`recorder`, `hooks` and `observe` use them; `Row` and `Ledger` become the rank's record.
"""
