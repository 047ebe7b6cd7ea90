"""Losses that stacks put in place of transformers' own for causal language models.

trl        SFTTrainer's log-probabilities in tiles
policies   log-probabilities of verl's and OpenRLHF's actors
chunks     torchtune's and LitGPT's heads, chunk by chunk
replace    puts one of them in place for the time of a step
"""
