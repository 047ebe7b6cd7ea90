"""What runs at the hooks of modules and gradients: `walk` works it out as the acts of a `script`, once for all ranks
that differ in what they offload alone; `acts` places them in one rank's stream. A rank imports `walk` and `acts`."""
