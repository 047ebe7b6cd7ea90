"""DeepSpeed's ZeRO: what its stages share; stages 1 and 2, and stage 3, in rooms of their own."""
