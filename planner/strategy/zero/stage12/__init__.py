"""ZeRO stages 1 and 2: flat groups of the optimizer, partitioned, and what one rank goes through."""
