"""Engines that serve a model: what they reserve of a device, by their own rules. One folder an engine.

    vllm/   vLLM's utilisation, weights by rank, activation profile, CUDA graphs and cache blocks

Pure arithmetic over a model's parameters and config: no engine runs here.
"""
