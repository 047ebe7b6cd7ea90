"""Jobs of several models that other tools start, as job documents: pure.

shell      a shell script's command with its variables put in
asked      what a tool was told, with its own defaults beneath, and which of it was read
written    a job document as TOML and as plain values
openrlhf   OpenRLHF's command lines
verl       verl's command lines and YAML
open_instruct  open-instruct's YAML for preference optimisation; open_instruct_grpo its GRPO's learners
find       whose job a text is
"""
