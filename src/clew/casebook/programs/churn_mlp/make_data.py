"""Write a synthetic table of customers: data/train.csv and data/val.csv."""

from pathlib import Path

import numpy as np
import pandas as pd

PLANS = ["basic", "family", "business"]
REGIONS = ["north", "south", "east", "west"]


def make(count, first_id, rng):
    plan = rng.choice(PLANS, count, p=[0.5, 0.3, 0.2])
    region = rng.choice(REGIONS, count)
    tenure = rng.gamma(2.0, 14.0, count).round(1)
    calls = rng.poisson(1.2, count)
    monthly = (12 + 14 * (plan == "family") + 30 * (plan == "business") + rng.gamma(2.0, 4.0, count)).round(2)
    usage = rng.lognormal(2.2, 0.6, count).round(2)
    age = rng.integers(18, 80, count)
    score = (
        -1.6
        - 0.06 * (tenure - 28)
        + 1.1 * (calls - 1.2)
        + 0.07 * (monthly - 32)
        - 1.2 * (np.log(usage) - 2.2)
        + 1.0 * (plan == "basic")
        + 0.6 * (region == "west") * (age < 35)
    )
    churned = rng.random(count) < 1 / (1 + np.exp(-1.6 * score))
    return pd.DataFrame(
        {
            "customer_id": np.arange(first_id, first_id + count),
            "plan": plan,
            "region": region,
            "tenure_months": tenure,
            "support_calls": calls,
            "monthly_fee": monthly,
            "usage_gb": usage,
            "age": age,
            "churned": churned.astype(int),
        }
    )


if __name__ == "__main__":
    rng = np.random.default_rng(11)
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    make(2400, 100_000, rng).to_csv(folder / "train.csv", index=False)
    make(800, 200_000, rng).to_csv(folder / "val.csv", index=False)
