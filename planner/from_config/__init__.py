"""Other tools' configuration files as a workload and a strategy: pure, one module per format, registered in `kinds`.

    accelerate, axolotl, deepspeed, llamafactory, trainer   the formats; a new one is a module and a line in `kinds`
    fsdp, shared                                            what several formats have in common
    table, reading                                          keys read and unread, contradictions refused
    convert                                                 a file's content to options of `plan`
    show                                                    these as words, TOML, text or JSON

Others use `convert`, `reading.Fetch` and `show`. Files are read by gpu_plan.commands.from_config alone; a file that
names another asks for it through a function. No torch, and none of the tools.
"""
