"""Small stand-ins for what a script loads and does not find, where `--data standin` asks for them; all are named.

    schemas, columns, rows   which columns a data set has, by name or by the script's own text, and what stands in them
    told                     what has been stood in for, in words
    data_sets                `datasets.load_dataset` and its relatives
    tokenizers, encodings    tokenizers of transformers, of the model's own vocabulary; tiktoken's
    downloads                text files that the script fetches by urllib or requests
    metrics                  `evaluate.load`
    vision                   torchvision's transforms, for the user's own files alone

The first three and `told` are pure; the others run in the capturing child. What is there is never replaced.
"""
