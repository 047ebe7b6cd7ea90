"""GPU facts with their sources, cluster specifications, detection. No torch.

    catalog, names, gpu   the shipped facts (gpus.toml), names that mean the same GPU, one GPU's values and bases
    user_gpus             GPUs that the user describes
    cluster               `Cluster`, `parse_cluster`: `2x8xA100-80GB` and the like
    detect, ram           what this machine has (I/O)

Used from `options/` up to the commands; knows neither models nor jobs.
"""
