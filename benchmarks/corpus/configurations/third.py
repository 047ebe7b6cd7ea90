"""A third draw of configurations, by the rule of `listing` and a fresh seed, from repositories that no draw looked at.

    .venv/bin/python -m benchmarks.corpus.configurations.third FOLDER

FOLDER holds one checkout for each of REPOSITORIES. DRAW says how many are taken.
Writes third_drawn.json: repository, commit, path. What each must give stands in third.json,
written from the files' text before the first run.
"""

import sys

from benchmarks.corpus.configurations.draw import Draw

REPOSITORIES = (
    "FlagOpen/FlagEmbedding", "FreedomIntelligence/HuatuoGPT-o1", "GAIR-NLP/LIMO", "HazyResearch/safari",
    "InternLM/xtuner", "OpenGVLab/InternVL", "OpenRLHF/OpenRLHF", "ServiceNow/Fast-LLM", "arcee-ai/DistillKit",
    "argilla-io/notus", "aws-samples/awsome-distributed-training", "deepspeedai/DeepSpeed",
    "foundation-model-stack/fms-hf-tuning", "h2oai/h2o-llmstudio", "hpcaitech/ColossalAI-Examples",
    "huggingface/autotrain-advanced", "huggingface/smol-course", "modal-labs/llm-finetuning", "nlpxucan/WizardLM",
    "predibase/llm_distillation_playbook", "shibing624/MedicalGPT", "simplescaling/s1", "yangjianxin1/Firefly",
    "ymcui/Chinese-LLaMA-Alpaca-3",
)  # fmt: skip
DRAW = Draw(name="third", seed=31, few=4, repositories=REPOSITORIES)


if __name__ == "__main__":
    sys.exit(DRAW.main())
