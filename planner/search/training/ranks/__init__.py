"""What a judged plan's ranks take and wait for, as a document has it. Imports no torch.

told      each kind of rank
crowded   one whose experts are chosen more often than others'
spanning  degrees larger than a node, and what a step waits for them
"""
