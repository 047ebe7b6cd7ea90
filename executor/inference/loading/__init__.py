"""A checkpoint's weights on the devices, in RAM and on disk as the plan maps them.

    checkpoint, pages   headers and files, checked before a byte is loaded; pages given back after reading
    model               the class without weights; whether checkpoint and device map fit it
    load                `load`: one process over a device map, or a shard or a stage in each of several
    stages, piped       pipeline stages of transformers, and of accelerate where transformers has none
    random_weights      weights made up for a config that has none
    room, spread        whether machine and class can do what the map asks; refused before anything starts

Used by `inference` alone, but for `room.clear_offload` (`supervise`). torch and transformers inside functions.
"""
