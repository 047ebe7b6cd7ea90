"""FSDP1: flat parameters, how they are wrapped, and when its runtime gathers and frees them."""
