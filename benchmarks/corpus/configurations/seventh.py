"""A seventh draw of configurations, by the rule of `listing` and a fresh seed, from repositories no draw looked at.

    .venv/bin/python -m benchmarks.corpus.configurations.seventh FOLDER

FOLDER holds one checkout for each of REPOSITORIES. DRAW says how many are taken.
Writes seventh_drawn.json: repository, commit, path. What each must give stands in seventh.json,
written from the files' text before the first run.
"""

import sys

from benchmarks.corpus.configurations.draw import Draw

REPOSITORIES = (
    "CSCfi/pytorch-ddp-examples", "Dong237/ms-swift", "HaoranLuo/text2sql-grpo",
    "JayDS22/Multi-GPU-Distributed-Training-Framework", "JensenYX/ms-swift-latent-reasoning",
    "KarasiewiczStephane/distributed-training", "LinguaLogician/LLaMA-Factory", "Qihoo360/360-LLaMA-Factory",
    "Sunshine535/nips-grpo-dynamics", "aashkashah09/rec-grpo", "ahlearn/calc-transformer-pytorch",
    "aleks-apostle/Hierarchical-Memory-Transformer-PyTorch", "deeplearningcafe/transformer-pytorch",
    "djsaunde/axolotl-configs", "elizabethsztan/grpo-trait-dynamics", "eminorhan/frontier-torchtitan", "if001/litgpt",
    "insdout/GMVAE-pytorch", "mseeger/litgpt", "nemoramo/LLaMA-Factory", "nhockid235/xling-grpo-sub3b",
    "peterparity/PDE-VAE-pytorch", "prathyusha1231/lora-finetune-pipeline", "rakkit/torchtitan",
    "rubenbalbastre/grpo-llm-unlearning", "saforem2/torchtitan", "saitejasrivilli/distributed-training-models",
    "sbordt/litgpt", "sdivyanshu90/build-your-own-distributed-training",
    "sdivyanshu90/build-your-own-hybrid-distributed-training", "selizondo/lora-finetune",
    "sudsho/pytorch-ddp-distributed-train", "xyfJASON/vqvae-pytorch", "zqiu24/litgpt",
)  # fmt: skip
DRAW = Draw(name="seventh", seed=73, few=3, drawn=52, repositories=REPOSITORIES)


if __name__ == "__main__":
    sys.exit(DRAW.main())
