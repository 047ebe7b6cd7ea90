"""Jobs that a document describes: several models and their phases on one simulated device.

document   the file, read
sources    each model as it is found, with the head that the document gives it
runner     what one model stands for between phases, and takes in each
generated  the same for one that generates
composed   all of them beside the model that is searched
evaluator  candidates of that model, judged with the others beside it
times      seconds of each phase, and of what is moved for it
figures    peaks by phase and by model, and seconds
prepare    the document, prepared for the search
"""
