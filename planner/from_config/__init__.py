"""Other tools' configuration files as a workload and a strategy: pure, one module per format, registered in `kinds`.

Files are read by gpu_plan.commands.from_config alone; a file that names another asks for it through a function.
"""
