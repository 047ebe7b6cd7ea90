"""Other tools' configuration files as a workload and a strategy: pure, one module per format, registered in `kinds`.

    formats/                                                one module for each format, registered in `kinds`
    table, reading                                          keys read and unread, contradictions refused
    shell/                                                  a shell script's commands, whatever they start
    documents/                                              jobs of several models that other tools start
    python_text                                             what a function of a Python file builds, from its text
    unread                                                  what is recognised and refused instead of guessed
    convert                                                 a file's content to options of `plan`
    show                                                    these as words, TOML, text or JSON

Others use `convert`, `reading.Fetch` and `show`. Files are read by gpu_plan.commands.from_config alone; a file that
names another asks for it through a function. No torch, and none of the tools.
"""
