"""A fifth draw of training scripts, by the rule of `third` and a fresh seed, from repositories that no draw looked at.

    .venv/bin/python -m benchmarks.corpus.fifth FOLDER [--packages FOLDER]

Writes fifth_scripts.json.
"""

import sys
from pathlib import Path

from benchmarks.corpus.third import Draw
from benchmarks.corpus.third import main as draw_by_the_rule

REPOSITORIES = (
    "FareedKhan-dev/train-llm-from-scratch", "FreedomIntelligence/HuatuoGPT-o1", "HazyResearch/safari",
    "Infatoshi/fcc-intro-to-llms", "InternLM/xtuner", "L0SG/relational-rnn-pytorch", "Lightning-AI/tutorials",
    "MAZiqing/FEDformer", "MooreThreads/SimuMax", "NVIDIA-NeMo/Megatron-Bridge", "NVIDIA/Megatron-LM",
    "NVIDIA/TransformerEngine", "NVIDIA/apex", "OpenGVLab/InternVL", "ServiceNow/Fast-LLM",
    "SkalskiP/ILearnDeepLearning.py", "argilla-io/notus", "axolotl-ai-cloud/axolotl",
    "bitsandbytes-foundation/bitsandbytes", "catalyst-team/catalyst", "deepspeedai/DeepSpeed",
    "dhlee347/pytorchic-bert", "ethanfetaya/NRI", "facebookresearch/fairscale", "facebookresearch/optimizers",
    "foundation-model-stack/fms-hf-tuning", "h2oai/h2o-llmstudio", "higgsfield-ai/higgsfield", "hiyouga/LLaMA-Factory",
    "hkproj/pytorch-transformer-distributed", "horovod/horovod", "hpcaitech/ColossalAI-Examples",
    "huggingface/autotrain-advanced", "huggingface/course", "huggingface/kernels-community", "huggingface/notebooks",
    "huggingface/open-r1", "ikostrikov/pytorch-a2c-ppo-acktr-gail", "intel/intel-extension-for-pytorch",
    "karpathy/deep-vector-quantization", "karpathy/pytorch-normalizing-flows", "kozistr/pytorch_optimizer",
    "kyegomez/BitNet", "kyegomez/zeta", "labmlai/annotated_deep_learning_paper_implementations",
    "lucidrains/FLASH-pytorch", "lucidrains/PaLM-pytorch", "lucidrains/compressive-transformer-pytorch",
    "lucidrains/electra-pytorch", "lucidrains/g-mlp-pytorch", "lucidrains/hourglass-transformer-pytorch",
    "lucidrains/memorizing-transformers-pytorch", "lucidrains/mixture-of-attention", "lucidrains/perceiver-ar-pytorch",
    "lucidrains/ring-attention-pytorch", "lucidrains/routing-transformer", "ludwig-ai/ludwig", "maziarraissi/PINNs",
    "ml-jku/hopfield-layers", "modal-labs/llm-finetuning", "neuraloperator/neuraloperator",
    "nikhilbarhate99/PPO-PyTorch", "openai/grok", "openai/sparse_autoencoder", "patrickloeber/pytorchTutorial",
    "philipperemy/n-beats", "predibase/llm_distillation_playbook", "pytorch-labs/attention-gym", "pytorch/xla",
    "rasbt/MachineLearning-QandAI-book", "rasbt/dora-from-scratch", "sanjeevanahilan/nanoChatGPT", "sfujim/TD3",
    "tanishqkumar/beyond-nanogpt", "teddykoker/grokking", "thuml/Autoformer", "thuml/iTransformer", "thunlp/OpenPrompt",
    "tic-top/LoraCSE", "volcengine/verl", "wiseodd/generative-models", "ymcui/Chinese-LLaMA-Alpaca-3",
    "yuqinie98/PatchTST",
)  # fmt: skip
DRAW = Draw(REPOSITORIES, seed=30, drawn=40, most=4, out=Path(__file__).parent / "fifth_scripts.json")

if __name__ == "__main__":
    sys.exit(draw_by_the_rule(sys.argv[1:], DRAW))
