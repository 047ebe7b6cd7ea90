"""The planned GPUs, by every name that a script has for them.

cuda, accelerator  torch.cuda and torch.accelerator
stream             what nothing waits for
defaults           tensors that are made on the GPU unless said otherwise; torch.cuda.FloatTensor and its like
"""
