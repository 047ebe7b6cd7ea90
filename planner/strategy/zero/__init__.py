"""ZeRO as DeepSpeed runs it: one module for each stage, which is what the registry lists.

`common` is what the stages share; `stage12/` and `stage3/` hold the two ways that DeepSpeed itself has. Bytes per rank;
neither torch nor DeepSpeed is imported.
"""
