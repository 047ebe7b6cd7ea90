"""Generations: a model's own `generate`, traced on the meta device.

    generations, variant, passes   what is asked, which generation, its forward passes cut and joined
    sizes                          generations of sizes between recorded ones
    shelf                          `find_generations`: those that are shipped, over prompts and batches (I/O)
    provider                       `GenerationProvider`: from memory, shipped, from the cache, or by tracing (I/O)
    session, record                builds the model and records it
    staging                        one pipeline stage, as transformers has it

The first three lines import no torch and are what planning uses; `provider` opens `session` when neither what is
shipped nor the cache answers.
"""
