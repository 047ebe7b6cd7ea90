"""Jobs of several models that other tools start, as job documents: pure.

asked      what a tool was told, with its own defaults beneath, and which of it was read
written    a job document as TOML and as plain values
openrlhf   OpenRLHF's command lines; openrlhf_older their words before 0.10
verl       verl's command lines and YAML, and those of its forks; cuts how its passes are cut
hydra      the configuration that stands beneath a command's overrides
easy_r1    EasyR1's command lines
open_instruct  open-instruct's YAML for preference optimisation; open_instruct_grpo its GRPO's learners
llamafactory  LLaMA-Factory v1's YAML for DPO
find       whose job a text is
"""
