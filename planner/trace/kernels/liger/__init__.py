"""Liger's kernels on the meta device: what they allocate, keep and overwrite.

    replace         `liger_kernels`: in place for one step, as transformers' `use_liger_kernel` puts them there
    kernels, loss   norms, gated products and rotation; the fused linear cross entropy

Which models they fit is `planner.model.kernels.liger`. Used by the tracer. Imports torch and transformers.
"""
