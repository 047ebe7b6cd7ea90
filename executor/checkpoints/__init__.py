"""Checkpoints: when one is complete, which is the newest, and under which plan it can be resumed.

**What a complete checkpoint is.** A folder that holds `plan-checkpoint.json` (the manifest, `manifest.Manifest`) and
every file that the manifest names with the size that it gives and the content whose digest it gives; the manifest ends
with a digest of itself, so that every byte is covered. It is written last, in one piece, after every rank has finished
saving and after the files have reached the disk; a folder without one, or whose files differ, is never resumed from.
Manifests of version 1, which cover the content of small files only, are still read.

**How ranks fulfil it.** `Accelerator.save_state` and the Trainer's saving do so under the runner, with the script
untouched (`executor/runner/saving/hooks.py`). Each rank, once its own part is saved, leaves a marker
`.plan-rank-N.json` in the folder that names run, attempt, step, the samples it has consumed and the digests of what it
wrote. Whoever finds the markers of all ranks writes the manifest: the last rank to finish, without any barrier, so that
a script which saves on its first rank only is not blocked. Such a replicated checkpoint gets its manifest when the next
optimizer step has ended, since a collective has then passed that every rank joins only after its own saving. A save
into a folder that is there already takes its manifest away first.

**Rotation.** Where a library numbers checkpoints itself, its `ProjectConfiguration(total_limit=N)` or
`save_total_limit=N` is respected, with one difference: older checkpoints are deleted after the new one is complete, so
the last complete one is never deleted. Torn folders do not count, and one that stands where accelerate would number the
next checkpoint is moved aside. What a script names itself, it deletes itself.

**Position.** The manifest tells optimizer steps, and samples that all ranks together have consumed since the start of
the job. The position counts in samples, so that it holds when micro batch, accumulation or number of ranks change.

    digest      of whole files, read while they are still in memory; the standard library and numpy
    manifest    `plan-checkpoint.json`; the standard library only, since ranks write it
    markers     what ranks leave while they save, and the manifest that follows the last marker; standard library only
    find        complete checkpoints, the newest, torn ones
    resume      `decide_resume`: as it stands, converted first, or not at all; `make_ready` and `convert_into`
                convert
    given       one that the user's own words name: looked at before anything is launched
    convert/    the converter, in a process of its own

`runner/saving` uses `manifest` and `markers`; `supervise` uses `find`, `given` and `resume`, `plan convert` the first
and the last of them. No torch but in `convert/`.
"""
