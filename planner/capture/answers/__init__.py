"""What the user's code is answered in place of a GPU, a network and a cluster: context managers around the script.

    devices                    the planned GPUs, by all their names; what is made there by default
    distributed                one rank whose collectives nobody answers
    host_values                values that meta does not have: by named policy, each site listed
    pretrained, quantised      `from_pretrained` without weights, in 4 bits too
    placement, precision       what is meant for a GPU goes to meta; autocast as the script opens it
    generation                 completions that are trained on, without generating every token
    diffused                   models of diffusers without weights
    trainers/                  what trainers ask of their process
    trl/                       what TRL's own code asks of a GPU or of weights
    lengths                    the longest samples of the script's own loaders first
    loaders                    data loaders in this process, of the planned micro batch

`capture.window` and `capture.block` open them, `watch` reads some. Imports torch; only for the capturing side.
"""
