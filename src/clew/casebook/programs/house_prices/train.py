import argparse
from pathlib import Path

import torch
import yaml

from pricing.data import build_loaders
from pricing.engine.optim import build_optimizer, build_scheduler
from pricing.engine.regression import PriceTrainer
from pricing.models.factory import build_model

ROOT = Path(__file__).parent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, default=ROOT / "config.yaml")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    config = yaml.safe_load(args.config.read_text())

    torch.manual_seed(args.seed)
    train_loader, val_loader, preprocessor = build_loaders(config["data"], ROOT)
    model = build_model(config["model"], inputs=train_loader.dataset.tensors[0].shape[1])
    optimizer = build_optimizer(model, config["optimizer"])
    scheduler = build_scheduler(optimizer, config["schedule"], len(train_loader))
    trainer = PriceTrainer(
        model,
        optimizer,
        scheduler,
        train_loader,
        val_loader,
        clip_grad=config["clip_grad"],
        preprocessor=preprocessor,
    )
    metrics = trainer.fit(config["schedule"]["epochs"])
    print(f"final val_r2={metrics['val_r2']:.4f}")


if __name__ == "__main__":
    main()
