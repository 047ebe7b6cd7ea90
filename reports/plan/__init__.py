"""A plan document for a reader: terminal, Markdown, JSON.

    terminal, markdown, as_json      the three formats
    words, generation_words,
    added                            a plan's figures in words, the same in every format
    bars, command, explain           memory as cells, the command in lines, the tensors at the peak
    cost, groups, pareto             money, alike reasons drawn together, plans that none beats

Pages, plots, other reports and the explorer use the words and figures. Pure but for colours (rich in `terminal`).
"""
