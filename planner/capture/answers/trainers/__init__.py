"""What the code of trainers asks of a process whose planned devices are on meta.

accelerate    the state's device, outputs in the type that they are computed in
transformers  the Trainer's device, and a checkpoint that ranks left in parts
"""
