"""sentence-transformers' trainer with losses of several forward passes: plain, cached, nested dimensions."""

import sys
import tempfile

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers import losses as known


def main() -> None:
    model = SentenceTransformer(sys.argv[1])
    loss = known.MultipleNegativesRankingLoss(model)
    if "cached" in sys.argv:
        loss = known.CachedMultipleNegativesRankingLoss(model, mini_batch_size=2)
    if "matryoshka" in sys.argv:
        loss = known.MatryoshkaLoss(model, loss, matryoshka_dims=[32, 16])
    rows = Dataset.from_dict({"anchor": ["a b a b"] * 32, "positive": ["a b a b a b a b"] * 32})
    arguments = SentenceTransformerTrainingArguments(
        output_dir=tempfile.mkdtemp(), max_steps=2, per_device_train_batch_size=4, report_to="none", save_strategy="no"
    )
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss).train()


if __name__ == "__main__":
    main()
