"""One rank's side of the checkpoint protocol that `executor.checkpoints` describes.

    hooks      saving and loading of Accelerate, the Trainer and DeepSpeed, hooked
    protocol   markers, manifests, rotation; never in the script's way (I/O)
    fits       whether what is loaded was saved for what runs
    loads      what accelerate leaves to the script after `load_state`

Installed by `runner.hooks.registry`; nobody else imports it.
"""
