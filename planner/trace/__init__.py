"""One training step, or one generation, of the real model, recorded on the meta device.

    events, storage/, static           `StepTrace`: the step as plain arrays; as bytes and back; one without events
    variant, device                   which step is recorded, for which device's kernels
    sizes/, rules                     over which micro batches, and what those say of others; what lies on no line
    provider, entries                 `TraceProvider`: from memory, from the cache, or by tracing (I/O)
    shipped/                          traces that come with this program
    session, tracer, step             builds the model, records variants, runs one step
    setup/, inputs/, kernels/         how a step is set up, what it is given, what kernels take
    recording/, folding/              records storages; repeated blocks traced once and tiled
    compile/, generation/, parallel/  compiled steps; `generate`; one rank's part of a model that ranks share
    layout                            where wrapping strategies look

The first five lines are for everybody and import no torch; `provider` opens `session` when no cache answers, and
torch comes in there. `capture` records with the same machinery.
"""
