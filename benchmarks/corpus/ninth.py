"""A ninth draw of training scripts, by the rule of `third` and a fresh seed, from repositories that none looked at.

    .venv/bin/python -m benchmarks.corpus.ninth FOLDER [--packages FOLDER]

Writes ninth_scripts.json.
"""

import sys
from pathlib import Path

from benchmarks.corpus.third import Draw
from benchmarks.corpus.third import main as draw_by_the_rule

REPOSITORIES = (
    "CSCfi/pytorch-ddp-examples", "Excelius-Wang/dive-into-transformer-pytorch", "HaoranLuo/text2sql-grpo",
    "JayDS22/Multi-GPU-Distributed-Training-Framework", "LIyvqi/ms-swift-learn",
    "PrecipiceBlades/fsdp-learning-cs336-style", "Sunshine535/nips-grpo-dynamics", "The-AI-Summer/pytorch-ddp",
    "aashkashah09/rec-grpo", "ahlearn/calc-transformer-pytorch",
    "aleks-apostle/Hierarchical-Memory-Transformer-PyTorch", "amau457/tiny-transformer-PyTorch",
    "ammunk/distributed-training-pytorch", "commaai/torchtitan", "deeplearningcafe/transformer-pytorch",
    "dragen1860/Deep-Learning-with-PyTorch-Tutorials", "dzorlu/distributed-training",
    "eblancocabana/grpo-training-engine", "eljandoubi/distributed-training-framework",
    "eminorhan/frontier-torchtitan", "gnovack/distributed-training-and-deepspeed", "hanlinxuy/my_muon_fsdp2",
    "if001/litgpt", "insdout/GMVAE-pytorch", "jaywonchung/BERT4Rec-VAE-Pytorch",
    "jiaorunnju/distributed-training-toolkit-with-pytorch", "mseeger/litgpt", "nemoramo/LLaMA-Factory",
    "nhockid235/xling-grpo-sub3b", "peterparity/PDE-VAE-pytorch", "prathyusha1231/lora-finetune-pipeline",
    "rakkit/torchtitan", "rubenbalbastre/grpo-llm-unlearning", "saforem2/torchtitan",
    "saitejasrivilli/distributed-training-models", "sanowl/Distributed-Training-Optimization-Framework",
    "sbordt/litgpt", "sdivyanshu90/build-your-own-hybrid-distributed-training", "selizondo/lora-finetune",
    "sgrvinod/a-PyTorch-Tutorial-to-Image-Captioning", "shivangraval50/distributed-training-lab",
    "sudsho/pytorch-ddp-distributed-train", "takah29/transformer-pytorch", "vshmyhlo/transformer-pytorch",
    "wangyz1999/timeVAE-pytorch", "xyfJASON/vqvae-pytorch", "zqiu24/litgpt",
)  # fmt: skip
DRAW = Draw(REPOSITORIES, seed=71, drawn=40, most=2, out=Path(__file__).parent / "ninth_scripts.json")

if __name__ == "__main__":
    sys.exit(draw_by_the_rule(sys.argv[1:], DRAW))
