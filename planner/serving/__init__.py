"""Engines that serve a model: what they reserve of a device, by their own rules. One folder an engine.

    known    the engines by name
    server   what is said of one: its rules, its command line, what it cannot split
    memory   one rank of an engine, whichever it is: what it holds, what is left for its cache
    layers   what a token takes of each layer's cache
    weights  what a tensor parallel rank loads
    profile  what the largest batch takes beyond weights
    vllm/    vLLM's utilisation, CUDA graphs and cache blocks
    sglang/  SGLang's static share, its pool of tokens and its graphs

Pure arithmetic over a model's parameters and config: no engine runs here.
"""
