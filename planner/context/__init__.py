"""Samples whose tokens several ranks share (`--cp`). Imports no torch.

split   what each rank holds of a sample
rules   what has to hold for it
"""
