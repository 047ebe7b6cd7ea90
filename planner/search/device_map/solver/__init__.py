"""The best device map, proved or with the bound that was reached. Values in, values out.

    solve, stages             `solve`: within a time limit, one goal after the other
    chain                     stretches over devices that are alike, where they are the only best map: no program
    model, program            the integer program over runs of equal items, solved by HiGHS
    windows, arrange          orders in which GPUs run stretches; counts per run made into a map

Used through `device_map.solve`; scipy and numpy are loaded when a program is solved, torch never.
"""
