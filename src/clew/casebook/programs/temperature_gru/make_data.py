"""Write eight years of made-up daily weather as data/weather.csv."""

from pathlib import Path

import numpy as np
import pandas as pd

if __name__ == "__main__":
    rng = np.random.default_rng(3)
    days = pd.date_range("2014-01-01", "2021-12-31", freq="D")
    n = len(days)
    season = np.cos(2 * np.pi * (days.dayofyear.to_numpy() - 200) / 365.25)
    pressure = np.zeros(n)
    anomaly = np.zeros(n)
    for t in range(1, n):
        pressure[t] = 0.75 * pressure[t - 1] + rng.normal(0, 4.0)
        anomaly[t] = 0.6 * anomaly[t - 1] + 0.42 * pressure[t - 1] + rng.normal(0, 1.0)
    table = pd.DataFrame(
        {
            "date": days,
            "temperature": (9.5 + 9.0 * season + anomaly).round(2),
            "pressure": (1013 + pressure).round(1),
            "humidity": (72 - 8 * season + 0.6 * pressure + rng.normal(0, 5, n)).clip(15, 100).round(1),
        }
    )
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    table.to_csv(folder / "weather.csv", index=False)
