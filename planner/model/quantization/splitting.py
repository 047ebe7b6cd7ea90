"""Which quantised weights transformers' tensor parallel splits over ranks, and why it does not split the others.

Read in transformers 5.23 distributed/tensor_parallel.py and quantizers/, and tried with `from_pretrained(tp_plan=...)`
on two gloo ranks where a method runs on a CPU: fine-grained FP8 and torchao give one process's words, bitsandbytes' 4
and 8 bits end in an error in the first product.
"""

from collections.abc import Mapping

from gpu_plan.planner.model.quantization.scheme import Method, Scheme

_WHOLE: Mapping[Method, str] = {
    Method.BNB_4BIT: "what a rank gets of a weight has lost bitsandbytes' quant_state, and the first product fails",
    Method.INT8: "what a rank gets of a weight has lost bitsandbytes' scales, and the first product fails",
    Method.GPTQ: "GPTQModel keeps packed weights as buffers, and a class's plan splits parameters",
    Method.AWQ: "GPTQModel keeps packed weights as buffers, and a class's plan splits parameters",
    Method.COMPRESSED: "a class's plan would split the scales and shapes that lie beside the weights wrongly",
    Method.MXFP4: "gpt-oss's class has a plan for whole experts alone, none for tensor parallel",
    Method.GGUF: "no class's plan splits a file's blocks",
}


def unsplit(scheme: Scheme | None) -> str | None:
    """Why tensor parallel cannot be had with these weights, and what to do instead; None where it can.

    quantizers/base.py: HfQuantizer.update_parallel_plan; quantizer_finegrained_fp8.py: the same with scales that are
    scalars; integrations/torchao.py: TorchAoQuantize.convert, which quantises a rank's own part.
    """
    why = None if scheme is None else _WHOLE.get(scheme.method)
    if scheme is None or why is None:
        return None
    return f"transformers does not split {scheme.word} weights: {why} (--strategy device-map, or --server vllm)"
