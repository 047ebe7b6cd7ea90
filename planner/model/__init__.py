"""Where models come from, and how they are built on the meta device.

    source/, catalog_index                    MODEL as the user wrote it, to a config; the shipped catalog
    config_reader, config_sizes               a config that may be broken or hostile, refused in one line
    build/                                    the real class on meta
    family, spec                              facts about a built model; the model as plain values
    adapter, adapt                            adapters asked for; peft's own wrapping
    quantization/, linear4bit                 quantised weights
    float8, kernels/                          float8 layers; kernels in place of what a class computes

`adapter`, `spec`, `catalog_index`, `kernels.liger`, `kernels.sinks`, the config readers, `source/`, and of
`quantization/` what reads configs and words import no torch and are what planning uses; the rest is for `trace` and
`capture`.
"""
