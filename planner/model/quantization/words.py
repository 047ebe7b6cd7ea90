"""The words of `--quantize`.

none                   weights as the config has them, unquantised where it does not say
int8                   bitsandbytes LLM.int8()
nf4  nf4-dq            bitsandbytes NF4; -dq with double quantisation
fp4  fp4-dq            bitsandbytes FP4
gptq-4bit-128          GPTQ: 2, 3, 4 or 8 bits; groups of 16 to 1024, or `-channel`; `-act` at the end: desc_act
awq-4bit-128           AWQ, gemm layout: 4 bits; groups of 16, 32, 64 or 128, or `-channel`
fp8                    fine-grained FP8, blocks of 128 x 128, as DeepSeek-V3 and Qwen3-FP8 are stored
fp8-tensor             FP8 with one scale per tensor
fp8-channel            compressed-tensors: FP8 with one scale per output channel, activations per token
mxfp4                  gpt-oss's experts: FP4 in blocks of 32 with one byte of scale
torchao-int8  torchao-int4  torchao-int4-128  torchao-float8    weight-only, quantised while loading
gguf:FILE              the tensors of a GGUF file, at their true bits per weight
"""

import re

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.model.quantization.scheme import Method, Scheme
from gpu_plan.planner.nearest import did_you_mean

GPTQ_BITS = (2, 3, 4, 8)
"""transformers utils/quantization_config.py: GPTQConfig.post_init."""
GPTQ_GROUPS = (16, 32, 64, 128, 256, 512, 1024)
"""GPTQModel gptqmodel/nn_modules/qlinear/torch.py: TorchLinear.SUPPORTS_GROUP_SIZE."""
AWQ_GROUPS = (16, 32, 64, 128)
"""GPTQModel gptqmodel/nn_modules/qlinear/gemm_awq.py: AwqGEMMLinear.SUPPORTS_GROUP_SIZE."""
TORCHAO_GROUPS = (32, 64, 128, 256)
"""torchao quantization/quant_api.py: Int4WeightOnlyConfig.group_size."""

_FIXED = {
    "int8": Scheme(method=Method.INT8, word="int8", bits=8),
    "nf4": Scheme(method=Method.BNB_4BIT, word="nf4", bits=4, group_size=64, number="nf4"),
    "nf4-dq": Scheme(method=Method.BNB_4BIT, word="nf4-dq", bits=4, group_size=64, number="nf4", double_quant=True),
    "fp4": Scheme(method=Method.BNB_4BIT, word="fp4", bits=4, group_size=64, number="fp4"),
    "fp4-dq": Scheme(method=Method.BNB_4BIT, word="fp4-dq", bits=4, group_size=64, number="fp4", double_quant=True),
    "fp8": Scheme(method=Method.FP8, word="fp8", bits=8, block=(128, 128), number="float", activations="dynamic"),
    "fp8-tensor": Scheme(method=Method.FP8, word="fp8-tensor", bits=8, number="float", activations="dynamic"),
    "fp8-channel": Scheme(method=Method.COMPRESSED, word="fp8-channel", bits=8, number="float", activations="dynamic"),
    "mxfp4": Scheme(method=Method.MXFP4, word="mxfp4", bits=4, group_size=32, number="float"),
    "torchao-int8": Scheme(method=Method.TORCHAO, word="torchao-int8", bits=8),
    "torchao-int4": Scheme(method=Method.TORCHAO, word="torchao-int4", bits=4, group_size=128, symmetric=False),
    "torchao-float8": Scheme(method=Method.TORCHAO, word="torchao-float8", bits=8, number="float"),
}
WORDS = (*_FIXED, "gptq-4bit-128", "awq-4bit-128", "gguf:FILE")
"""What help and refusals offer; `none` aside."""
_GROUPED = re.compile(r"(gptq|awq)-(\d+)bit(?:-(\d+|channel))?(-act)?")
_TORCHAO_INT4 = re.compile(r"torchao-int4-(\d+)")


def parse_quantize(word: str) -> Scheme | None:
    """The scheme that `word` names, None for `none`. UsageError in one line for any other word."""
    if word.startswith("gguf:"):
        if not word.removeprefix("gguf:"):
            raise UsageError("--quantize gguf: names no file: write gguf:FILE")
        return Scheme(method=Method.GGUF, word="gguf", bits=0, prequantised=True, path=word.removeprefix("gguf:"))
    text = word.strip().lower().replace("_", "-")
    if text == "none":
        return None
    if text in _FIXED:
        return _FIXED[text]
    if found := _GROUPED.fullmatch(text):
        return grouped(found[1], int(found[2]), found[3] or "128", desc_act=bool(found[4]), given=word)
    if found := _TORCHAO_INT4.fullmatch(text):
        return _torchao_int4(int(found[1]), word)
    known = ("none", *WORDS)
    raise UsageError(f"--quantize {word!r} is unknown: {', '.join(known)}.{did_you_mean(text, known)}")


TRAINABLE = ("nf4", "fp4", "int8", "gptq-4bit-128", "awq-4bit-128")
"""Examples of what adapters can be trained on."""


def trainable_base(word: str) -> str:
    """The word of a base that adapters are trained on, as it is kept. UsageError for any other."""
    offered = f"use {', '.join(TRAINABLE)}"
    try:
        scheme = parse_quantize(word)
    except UsageError as problem:
        if word.startswith(("gptq-", "awq-")):
            raise UsageError(str(problem).replace("--quantize ", "--set quant.base=")) from None
        raise UsageError(f"--set quant.base={word}: {offered}") from None
    bitsandbytes = (Method.INT8, Method.BNB_4BIT)
    if scheme is None or scheme.double_quant or scheme.method not in (*bitsandbytes, Method.GPTQ, Method.AWQ):
        more = " with --set quant.double=true" if scheme is not None and scheme.double_quant else ""
        raise UsageError(f"--set quant.base={word}: {offered}{more}")
    return scheme.word


def is_bitsandbytes(word: str) -> bool:
    """Whether the base is quantised by bitsandbytes while it is loaded, as QLoRA has it."""
    return word in ("nf4", "fp4", "int8")


def grouped(kind: str, bits: int, group: str, *, desc_act: bool, given: str) -> Scheme:
    """GPTQ's or AWQ's scheme of that many bits; `group`: elements per scale, or `channel`."""
    method = Method(kind)
    allowed_bits, allowed_groups = (GPTQ_BITS, GPTQ_GROUPS) if method is Method.GPTQ else ((4,), AWQ_GROUPS)
    if bits not in allowed_bits:
        raise UsageError(f"--quantize {given}: {kind} has {_any_of(allowed_bits)} bits, not {bits}")
    if group != "channel" and int(group) not in allowed_groups:
        raise UsageError(f"--quantize {given}: groups of {group} are not stored; write {_any_of(allowed_groups)}")
    if desc_act and method is Method.AWQ:
        raise UsageError(f"--quantize {given}: AWQ has no activation order: leave -act out")
    return Scheme(
        method=method,
        word=f"{kind}-{bits}bit-{group}" + ("-act" if desc_act else ""),
        bits=bits,
        group_size=None if group == "channel" else int(group),
        symmetric=method is Method.GPTQ,
        desc_act=desc_act,
        prequantised=True,
    )


def _torchao_int4(group: int, given: str) -> Scheme:
    if group not in TORCHAO_GROUPS:
        raise UsageError(f"--quantize {given}: torchao's int4 has groups of {_any_of(TORCHAO_GROUPS)}, not {group}")
    return Scheme(method=Method.TORCHAO, word=f"torchao-int4-{group}", bits=4, group_size=group, symmetric=False)


def _any_of(values: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, values[:-1]))} or {values[-1]}" if len(values) > 1 else str(values[0])
