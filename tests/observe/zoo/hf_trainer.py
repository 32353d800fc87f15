"""Trainer of transformers on a tiny GPT-2 with fresh weights and generated sequences, evaluated while training."""

import tempfile

import torch
from common import print_digest
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Counting(torch.utils.data.Dataset):
    """Arithmetic sequences modulo 30."""

    def __init__(self, n, seed):
        made = torch.Generator().manual_seed(seed)
        start = torch.randint(0, 30, (n, 1), generator=made)
        stride = torch.randint(1, 4, (n, 1), generator=made)
        self.rows = (start + stride * torch.arange(16)) % 30

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def main():
    set_seed(0)
    config = GPT2Config(
        vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=30, eos_token_id=31, pad_token_id=31
    )
    model = GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=24,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            learning_rate=3e-3,
            warmup_steps=4,
            lr_scheduler_type="cosine",
            eval_strategy="steps",
            eval_steps=12,
            logging_steps=6,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=Counting(512, 1), eval_dataset=Counting(64, 2))
        result = trainer.train()
        evaluation = trainer.evaluate()
    print(f"loss {result.training_loss:.5f} eval {evaluation['eval_loss']:.5f} steps {result.global_step}")
    print_digest(model, trainer.optimizer, trainer.lr_scheduler.state_dict())


if __name__ == "__main__":
    main()
