"""Find the thermal diffusivity of a rod from thermometer readings with a physics-informed network."""

import argparse
import tomllib
from pathlib import Path

import torch

from rod.losses import RodLoss
from rod.model import Temperature
from rod.problem import Rod

ROOT = Path(__file__).parent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, default=ROOT / "config.toml")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    config = tomllib.loads(args.config.read_text())
    torch.manual_seed(args.seed)

    rod = Rod(config["units"], **config["rod"])
    loss_fn = RodLoss(rod, rod.read(ROOT / config["readings"]), config["points"], config["weights"])
    model = Temperature()
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config["steps"], eta_min=1e-4)

    for step in range(1, config["steps"] + 1):
        loss, terms = loss_fn(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 100 == 0:
            found = rod.in_metres(model.diffusivity.item())
            shown = "  ".join(f"{name} {term.item():.2e}" for name, term in terms.items())
            print(f"step {step:4d}  loss {loss.item():.2e}  {shown}  diffusivity {found:.3e} m2/s")

    error = abs(found - rod.handbook) / rod.handbook
    print(f"final diffusivity_error={error:.4f}")


if __name__ == "__main__":
    main()
