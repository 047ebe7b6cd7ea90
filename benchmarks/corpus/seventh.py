"""A seventh draw of training scripts, by the rule of `third` and a fresh seed, from repositories that none looked at.

    .venv/bin/python -m benchmarks.corpus.seventh FOLDER [--packages FOLDER]

Writes seventh_scripts.json.
"""

import sys
from pathlib import Path

from benchmarks.corpus.third import Draw
from benchmarks.corpus.third import main as draw_by_the_rule

REPOSITORIES = (
    "Activated-AI/tinystories-quickstart", "AkariAsai/self-rag", "Andrei-Aksionov/nanoGPTplus",
    "BTGenTP/FineTuningOnTelecomCluster", "BlinkDL/nanoRWKV", "CalculatedContent/nanogpt-experiments",
    "Chiang0111/transformer-from-scratch-pytorch", "ContextualAI/gritlm", "EleutherAI/cookbook", "EleutherAI/sae",
    "Eric-is-good/pretrain-LLM-from-scratch", "Han-Adam/DRL-Pytorch-Tutorial", "JustKitting/nanogpt-120a",
    "KempnerInstitute/KempnerForge", "KyroChi/nanoGPT-maximal-paramaterizations", "Liquid4All/leap-finetune",
    "Mekadrom/megatransformer", "PAIR-code/tiny-transformers", "PRIME-RL/PRIME", "Perlou/deep-learning-course",
    "QwenLM/Qwen-VL", "RobotSail/mini-grpo", "Shahip2016/TinyStories", "ShaneLiu04/nanoGPT-Modern",
    "TingsongYu/PyTorch-Tutorial-2nd", "TransformerLensOrg/TransformerLens", "VIA-Research/vTrain",
    "Wodlfvllf/grpo-composer", "XiaoConstantine/nanogpt-titans", "ZZy979/pytorch-tutorial", "a-antoniades/train-llm",
    "aaaprprpr/llm-from-scratch-main", "adeelmahmood/nanogpt-to-chat", "aimerib/smollmfinetune", "akavi/nanoGPT",
    "alan-cooney/transformer-from-scratch", "anthonyli358/pytorch-nanogpt", "ashworks1706/llm-from-scratch",
    "bigscience-workshop/Megatron-DeepSpeed", "bpesquet/pytorch-tutorial", "chinmaydk99/Gemma3-270M-TinyStories",
    "chrishayuk/chuk-finetune", "corlin/finetuning-with-llama-factory", "cornellius-gp/gpytorch",
    "darianrosebrook/distill", "davemeeta/moe-transformer-from-scratch", "declare-lab/flan-alpaca",
    "deepseek-ai/DeepSeek-MoE", "deepseek-ai/ESFT", "digotetso/train-llm-from-scratch",
    "eduardoleao052/Transformer-from-scratch", "eliottzhang3-create/GZbridge-huginn-full-finetune",
    "gitE0Z9/pytorch-implementations", "gpu-mode/lectures", "graphdeeplearning/benchmarking-gnns",
    "harshaygadekar/dl-from-scratch", "harshbhatt7585/deep-learning-papers-implementation", "hemingkx/CLUENER2020",
    "henok3878/transformer-from-scratch", "henryyjiang/cortex-finetune", "higgsfield/RL-Adventure-2",
    "huggingface/cookbook", "jingyaogong/minimind-v", "joeglDev/Train-llm-lora", "joeynmt/joeynmt",
    "jsbaan/transformer-from-scratch", "jsturges28/diffusion-LLM", "jzhang38/EasyContext",
    "karthyick/llm_tinystories", "kencoken/qwen-grpo", "kingjameschan/gemma-math-sft-grpo", "klei22/nanoGPT",
    "krishnashashanth-sks/transformers-from-scratch", "lamm-mit/graph-preflexor-grpo",
    "longlnOff/Transformer-from-scratch-with-Torch-and-TorchLightning", "lucidrains/coordinate-descent-attention",
    "lucidrains/flash-cosine-sim-attention", "lucidrains/gateloop-transformer", "lucidrains/rvq-vae-gpt",
    "luyug/Condenser", "luyug/GradCache", "m-ahmed-elbeskeri/puffin-finetune-studio",
    "malteos/finetune-evaluation-harness", "microsoft/nni", "microsoft/torchscale", "nagix999/llm-finetuning",
    "noamdwc/grpo_chess", "optuna/optuna", "princeton-nlp/LESS", "pyro-ppl/pyro", "rajuX75/train-llm",
    "sail-sg/understand-r1-zero", "saprmarks/dictionary_learning", "sarelWeinberger/qwen-hebrew-finetuning",
    "shankarpandala/learn-deep-learning", "stanford-cs336/assignment2-systems",
    "stanford-cs336/assignment5-alignment", "sweetice/Deep-reinforcement-learning-with-pytorch",
    "tgritsaev/tinystories", "threelittlemonkeys/lstm-crf-pytorch", "unslothai/notebooks",
    "valonys/finetuningtraining", "venkatacrc/nanogpt-kv-cache", "ymcui/Chinese-LLaMA-Alpaca",
    "ystemsrx/mini-nanoGPT",
)  # fmt: skip
DRAW = Draw(REPOSITORIES, seed=57, drawn=60, most=3, out=Path(__file__).parent / "seventh_scripts.json")

if __name__ == "__main__":
    sys.exit(draw_by_the_rule(sys.argv[1:], DRAW))
