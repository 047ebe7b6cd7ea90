"""Why a regression value is not scored, for each flag or family that is set aside: shown beside how many there are."""

WHY = {
    "mimo models": "the peak is that of loading, not of a step: it stands 28.18 GB above what is held between steps,"
    " seen by the end of the first step and never passed in the 99 after it; vicuna-7B's 6.738 and CLIP ViT-L/336's"
    " 0.304 thousand million parameters (its checkpoint is in fp32, `mcore-v1.5_fp32`) take 28.17 GB at 4 bytes each."
    " What a step takes is below it and was not logged",
    "--cuda-graph-impl": "Transformer Engine's graphs keep attention's activations in pools of their own, which are not"
    " replayed; without graphs, its rotary embedding and its first dense layer the replay is 10 % above",
    "--export-kd-cfg": "ModelOpt distils: a second model and the losses between both stand beside the first, made by"
    " ModelOpt, of which no part is Megatron-core's",
    "--pipeline-model-parallel-layout": "stages of a layout of their own, a prediction layer on one of them, exchanges"
    " beside another micro batch's layers in an interleaved schedule, and activations copied to the host meanwhile: no"
    " such combination is replayed",
}
