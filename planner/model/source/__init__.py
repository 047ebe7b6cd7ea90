"""From what the user wrote as MODEL to a config and to weights' headers, wherever they stand. No torch.

    resolve                            `resolve`: `ModelSource`, from any of the below
    hub, folder_headers, factory       the hub or its local cache; a folder; `package.module:factory`
    headers, ranges                    safetensors headers: names, shapes, dtypes; over the network by byte ranges
    download                           bytes of the hub, bounded in number and time
    native                             which model types the installed transformers has, without importing it

Used by `job`, `capture`, `quantization` and prompt runs. Weights are never read, pickles never opened.
"""
