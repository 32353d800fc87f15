import argparse
import logging
import sys
from pathlib import Path

import torch
import yaml

from cellseg.data.dataset import build_loaders
from cellseg.engine.segmentation import SegmentationEngine
from cellseg.losses.dice import SegmentationLoss
from cellseg.models.unet import UNet

ROOT = Path(__file__).parent


def main():
    parser = argparse.ArgumentParser(description="Segment cells in small microscope images.")
    parser.add_argument("--config", type=Path, default=ROOT / "config.yaml")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)

    config = yaml.safe_load(args.config.read_text())
    torch.manual_seed(args.seed)
    train_loader, val_loader = build_loaders(config["data"], ROOT)
    optim = config["optim"]
    model = UNet(**config["model"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=optim["lr"], weight_decay=optim["weight_decay"])
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=optim["lr"], total_steps=optim["epochs"] * len(train_loader)
    )
    engine = SegmentationEngine(
        model, SegmentationLoss(**config["loss"]), optimizer, scheduler, threshold=config["threshold"]
    )
    metrics = engine.run(train_loader, val_loader, optim["epochs"])
    print(f"final val_iou={metrics['val_iou']:.4f}")


if __name__ == "__main__":
    main()
