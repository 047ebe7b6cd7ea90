"""Why a regression value is not scored, for each flag or family that is set aside: shown beside how many there are."""

WHY = {
    "mimo models": "the peak is that of loading, not of a step: it stands 28.18 GB above what is held between steps,"
    " seen by the end of the first step and never passed in the 99 after it; vicuna-7B's 6.738 and CLIP ViT-L/336's"
    " 0.304 thousand million parameters (its checkpoint is in fp32, `mcore-v1.5_fp32`) take 28.17 GB at 4 bytes each."
    " What a step takes is below it and was not logged",
    "--cuda-graph-impl": "seen by the end of the first step, which took 73.8 s, and never passed in the 49 after it:"
    " graphs are captured before that step (`--cuda-graph-warmup-steps 0`; megatron/training/training.py at 69ba8096f0,"
    " line 2433), one of each layer's attention and micro batch in the schedule's order, by Transformer Engine"
    " (core/transformer/cuda_graphs.py, line 1790: `_order`), and what a graph keeps is not allocated again when it"
    " runs. Nothing is missing in the arguments; a capture is not replayed. Of a step without graphs, with a rotary"
    " embedding in one kernel and experts in its first layer too, the replay was 10 % above",
    "--export-kd-cfg": "the arguments do not say how large the teacher is: it is read from `model_config.yaml` beside"
    " its checkpoint, and taken to be as the student where there is none (megatron/post_training/model_builder.py at"
    " 7e6a045a2a, lines 131 and 135); both stand in one model that ModelOpt converts (line 503), with its losses",
    "--pipeline-model-parallel-layout": "`Et*3|(tt|)*6mL` under an interleaved schedule, exchanges beside another micro"
    " batch's layers, parts that are run again, and activations copied to the host, groups of them after a first step"
    " that finds out which (core/pipeline_parallel/fine_grained_activation_offload.py at 4e85d74ae9, lines 527 to 554)."
    " Nothing is missing in the arguments but routing, by which the peak may have risen in seven of the 48 steps after"
    " its second, by 1.3 % together: not built",
}
