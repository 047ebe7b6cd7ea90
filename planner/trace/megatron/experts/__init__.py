"""Mixture-of-experts layers of Megatron-core on one rank (megatron/core/transformer/moe).

    router      which experts each token goes to
    permute     tokens brought into the order of their experts, and back
    dispatch    tokens sent to the ranks of their experts, and back
    grouped     a rank's experts as one grouped product, or one after the other
    layer       all of it, with the experts that every token goes to

How often an expert is chosen decides sizes, and data decide that: every expert is taken as chosen equally often.
"""
