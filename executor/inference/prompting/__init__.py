"""Prompts through a loaded model: read, batched, generated, kept.

    prompts, tokens     the file of prompts; tokens, checked against the model's lengths
    decode, sampling    one batch: prefill, then a token at a time; samples depend on seed, prompt and position only
    ranks               which process this is, and what it shares with others
    progress            what is done, kept through kills: `OUTPUT.progress/`
    measure, figures    bytes by device and interval (with `runner.memory`), and what a rank's record says

Used by `inference` alone. torch, accelerate and transformers inside functions.
"""
