"""Write made-up house sales, one file per district: data/<district>.csv, and data/holdout.csv."""

from pathlib import Path

import numpy as np
import pandas as pd

DISTRICTS = {"harbour": 1.35, "old_town": 1.2, "hillside": 1.05, "meadows": 0.9, "station": 0.8}


def sales(district, level, count, rng):
    area = rng.gamma(9.0, 12.0, count).clip(30, 320).round(1)
    rooms = np.clip((area / 28 + rng.normal(0, 0.8, count)).round(), 1, 10).astype(int)
    year = rng.integers(1900, 2021, count)
    garden = (rng.random(count) < 0.5) * rng.gamma(2.0, 110.0, count)
    centre = rng.gamma(2.0, 1.6, count).round(2)
    energy = rng.integers(1, 8, count)
    per_metre = 2900 * level * (1 - 0.035 * (energy - 4)) * np.exp(-0.05 * centre)
    per_metre *= 1 + 0.0015 * np.abs(year - 1955)
    price = area * per_metre + 18_000 * np.sqrt(rooms) + 140 * garden
    price *= np.exp(rng.normal(0, 0.07, count))
    return pd.DataFrame(
        {
            "district": district,
            "area_m2": area,
            "rooms": rooms,
            "year_built": year,
            "garden_m2": garden.round(),
            "km_to_centre": centre,
            "energy_class": energy,
            "price": price.round(-2),
        }
    )


if __name__ == "__main__":
    rng = np.random.default_rng(17)
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    held_out = []
    for district, level in DISTRICTS.items():
        sales(district, level, 400, rng).to_csv(folder / f"{district}.csv", index=False)
        held_out.append(sales(district, level, 100, rng))
    pd.concat(held_out).to_csv(folder / "holdout.csv", index=False)
