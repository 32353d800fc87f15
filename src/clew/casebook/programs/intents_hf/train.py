"""Train a small BERT from scratch to recognise intents."""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

from intents.data import Utterances, WordTokenizer, collate, read

ROOT = Path(__file__).parent


def compute_metrics(prediction):
    return {"accuracy": float((np.argmax(prediction.predictions, axis=-1) == prediction.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    set_seed(args.seed)

    train_rows, test_rows = read(ROOT / "data/train.csv"), read(ROOT / "data/test.csv")
    tokenizer = WordTokenizer(row["text"] for row in train_rows)
    labels = sorted({row["intent"] for row in train_rows})
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=32,
        num_labels=len(labels),
        pad_token_id=tokenizer.pad,
    )
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output_dir=output,
            seed=args.seed,
            eval_strategy="epoch",
            logging_strategy="epoch",
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            **json.loads((ROOT / "training.json").read_text()),
        )
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=arguments,
            train_dataset=Utterances(train_rows, tokenizer, labels),
            eval_dataset=Utterances(test_rows, tokenizer, labels),
            data_collator=collate,
            compute_metrics=compute_metrics,
        )
        trainer.train()
        metrics = trainer.evaluate()
    print(f"final eval_accuracy={metrics['eval_accuracy']:.4f}")


if __name__ == "__main__":
    main()
