"""A config as the real transformers class on the meta device: exact parameters, no storage.

    classes         which class a config means; imports no more than that class's own module
    construct       `build_model`, `from_factory`
    specs           `spec_of`: what a built model is, without transformers
    guard           configs that would take unbounded time or memory, refused before and during construction
    flash           FlashAttention-2's two functions, for transformers' own integration
    lean/           transformers imported without what no plan asks of it
    quiet_logs      what libraries log meanwhile, not shown

`trace`, `capture` and prompt runs use them. Imports torch and transformers.
"""
