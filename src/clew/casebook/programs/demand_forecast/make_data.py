"""Write two years of daily sales of five products in six made-up shops: data/sales.csv."""

from pathlib import Path

import numpy as np
import pandas as pd

WEEK = np.array([0.85, 0.8, 0.9, 1.0, 1.25, 1.45, 0.75])

if __name__ == "__main__":
    rng = np.random.default_rng(41)
    days = pd.date_range("2022-01-03", periods=560, freq="D")
    n = len(days)
    frames = []
    for shop in range(6):
        size = rng.uniform(0.6, 1.8)
        weather = np.zeros(n)
        for t in range(1, n):
            weather[t] = 0.97 * weather[t - 1] + rng.normal(0, 0.03)
        for product in range(5):
            level = np.zeros(n)
            for t in range(1, n):
                level[t] = 0.985 * level[t - 1] + rng.normal(0, 0.035)
            base = rng.uniform(15, 60) * size
            promo = np.repeat(rng.random(n // 7 + 1) < 0.2, 7)[:n]
            price = rng.uniform(2, 9) * np.where(promo, 0.8, 1.0)
            season = 0.2 * np.sin(2 * np.pi * (days.day_of_year.to_numpy() / 365.25 + product / 5))
            mean = base * WEEK[days.day_of_week] * np.exp(level + weather + season + 0.45 * promo)
            frames.append(
                pd.DataFrame(
                    {
                        "date": days,
                        "shop": f"shop{shop}",
                        "product": f"p{product}",
                        "price": price.round(2),
                        "promo": promo.astype(int),
                        "units": rng.poisson(mean),
                    }
                )
            )
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    pd.concat(frames).sort_values(["date", "shop", "product"]).to_csv(folder / "sales.csv", index=False)
