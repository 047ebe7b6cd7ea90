"""Tools that run transformers' Trainer.

trainer                                    TrainingArguments, and SFT of TRL
axolotl, llamafactory, ms_swift, unsloth   by their own keys and defaults
"""
