"""What a judged plan's ranks take, as a document has it. Imports no torch.

told      each kind of rank
crowded   one whose experts are chosen more often than others'
"""
