"""A fourth draw of training scripts, by the rule of `third` and a fresh seed, from repositories that no draw looked at.

    .venv/bin/python -m benchmarks.corpus.fourth FOLDER [--packages FOLDER]

Writes fourth_scripts.json.
"""

import sys
from pathlib import Path

from benchmarks.corpus.third import Draw
from benchmarks.corpus.third import main as draw_by_the_rule

REPOSITORIES = (
    "649453932/Bert-Chinese-Text-Classification-Pytorch", "CarperAI/trlx", "ContextualAI/HALOs",
    "Diego999/pyGAT", "EricLBuehler/xlora", "Facico/Chinese-Vicuna", "GAIR-NLP/LIMO", "InternLM/InternLM",
    "JonasGeiping/cramming", "KindXiaoming/pykan", "L1aoXingyu/code-of-learn-deep-learning-with-pytorch",
    "LianjiaTech/BELLE", "McGill-NLP/llm2vec", "MoonshotAI/Moonlight", "NovaSky-AI/SkyThought",
    "OpenBMB/MiniCPM", "OpenRLHF/OpenRLHF", "PrimeIntellect-ai/OpenDiloco", "RLHFlow/RLHF-Reward-Modeling",
    "THUDM/ChatGLM3", "Tongjilibo/bert4torch", "arcee-ai/DistillKit", "atong01/conditional-flow-matching",
    "baichuan-inc/Baichuan2", "cloneofsimo/min-max-gpt", "cloneofsimo/minRF", "cure-lab/LTSF-Linear",
    "deepseek-ai/DeepSeek-Coder", "dreamgonfly/transformer-pytorch", "dvlab-research/LongLoRA",
    "epfml/llm-baselines", "evintunador/minLlama3", "facebookresearch/schedule_free",
    "foundation-model-stack/fms-fsdp", "haotian-liu/LLaVA", "hkproj/pytorch-lora", "hpcaitech/ColossalAI",
    "huggingface/nanotron", "jaymody/picoGPT", "jiaweizzhao/GaLore", "kimiyoung/transformer-xl",
    "linkedin/Liger-Kernel", "lucidrains/Mega-pytorch", "lucidrains/denoising-diffusion-pytorch",
    "lucidrains/gated-state-spaces-pytorch", "lucidrains/h-transformer-1d",
    "lucidrains/infini-transformer-pytorch", "lucidrains/linear-attention-transformer",
    "lucidrains/local-attention", "lucidrains/minGRU-pytorch", "lucidrains/mixture-of-experts",
    "lucidrains/nGPT-pytorch", "lucidrains/vector-quantize-pytorch", "lukemelas/simple-bert", "microsoft/LoRA",
    "microsoft/mup", "mistralai/mistral-finetune", "ml-explore/mlx-examples", "mosaicml/examples",
    "nlp-with-transformers/notebooks", "nlpxucan/WizardLM", "princeton-nlp/SimPO", "pytorch/opacus",
    "pytorch/tnt", "pytorch/torchsnapshot", "pytorch/torchtitan", "pytorch/torchtune",
    "rasbt/stat453-deep-learning-ss21", "ray-project/ray-educational-materials", "rtqichen/torchdiffeq",
    "sgrvinod/a-PyTorch-Tutorial-to-Transformers", "skorch-dev/skorch", "sooftware/conformer",
    "stanford-futuredata/ColBERT", "stanfordnlp/pyreft", "thuml/Time-Series-Library", "tysam-code/hlb-gpt",
    "uclaml/SPIN", "zhouhaoyi/Informer2020", "zjunlp/EasyEdit",
)  # fmt: skip
DRAW = Draw(REPOSITORIES, seed=29, drawn=26, most=2, out=Path(__file__).parent / "fourth_scripts.json")

if __name__ == "__main__":
    sys.exit(draw_by_the_rule(sys.argv[1:], DRAW))
