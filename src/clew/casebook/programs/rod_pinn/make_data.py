"""Write what six thermometers along a cooling copper rod showed: data/readings.csv."""

import csv
import math
import random
from pathlib import Path

LENGTH, AMBIENT, WARMEST, DIFFUSIVITY = 0.5, 20.0, 80.0, 1.1e-4


def celsius(position, time):
    wave = math.pi / LENGTH
    return AMBIENT + WARMEST * math.exp(-DIFFUSIVITY * wave**2 * time) * math.sin(wave * position)


if __name__ == "__main__":
    rng = random.Random(19)
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    with open(folder / "readings.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seconds", "metres", "celsius"])
        for seconds in range(20, 501, 20):
            for metres in (0.06, 0.14, 0.22, 0.3, 0.38, 0.45):
                writer.writerow([seconds, metres, round(celsius(metres, seconds) + rng.gauss(0, 0.5), 2)])
