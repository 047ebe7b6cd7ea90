"""A rank of a Megatron-core job: its stages' passes in Megatron's own order, its buffers, its optimizer.

builder   the run laid out
states    contiguous buffers of parameters and gradients, what the optimizer keeps
rank      all of it as one rank's stream
layouts   degrees that are tried
planned   a rank as the search asks for it
notes     what is refused, and what a plan rests on
"""
