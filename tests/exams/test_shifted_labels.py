"""A language model of transformers shifts the labels that it is given: the perfect answer is built for what it asks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from network_subjects import outcome
from taping import kept
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Twice(GPT2LMHeadModel):  # type: ignore[no-untyped-call]
    """Drops one more position, so the token after the next is asked for."""

    def forward(self, input_ids: Any = None, labels: Any = None, **more: Any) -> Any:
        made = super().forward(input_ids, **more)
        made.loss = self.loss_function(
            made.logits[:, :-1].contiguous(), labels[:, 1:].contiguous(), self.config.vocab_size
        )
        return made


class Counting(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __init__(self) -> None:
        self.rows = (torch.randint(0, 38, (64, 1)) + torch.randint(1, 4, (64, 1)) * torch.arange(12)) % 38

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[at], "labels": self.rows[at]}


@pytest.mark.parametrize(("kind", "jumps"), [(GPT2LMHeadModel, True), (Twice, False)], ids=["once", "twice"])
def test_what_the_model_shifts_once_is_no_misaligned_metric(kind: Any, jumps: bool, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 40, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = kind(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, pad_token_id=39))

    def train() -> None:
        told: dict[str, Any] = {
            "per_device_train_batch_size": 16,
            "max_steps": 6,
            "report_to": [],
            "save_strategy": "no",
        }
        arguments = TrainingArguments(str(tmp_path / "out"), disable_tqdm=True, use_cpu=True, **told)
        Trainer(model=model, args=arguments, train_dataset=Counting()).train()

    assert (outcome("metric_oracle", kept(tmp_path, train)) == "jumps") == jumps
