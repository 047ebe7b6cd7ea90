"""Sizes that were not recorded: what a trace of some micro batches says of others. Pure, imports no torch.

lengths    a trace over sequence lengths: polynomials that recordings of several determine and prove
planes     a generation over prompts and batches, likewise
ranges     over which micro batches recordings are made, that a trace may hold between them
settled    the trace of a range, or of one micro batch, from recordings of others
errors     what cannot be told
"""
