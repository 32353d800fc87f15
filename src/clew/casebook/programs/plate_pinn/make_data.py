"""Write what nine thermocouples on the plate read: data/thermocouples.csv (x, y in metres, degrees Celsius)."""

import csv
import math
import random
from pathlib import Path

WIDTH, HEIGHT, AMBIENT, HEATING, CONDUCTIVITY = 0.30, 0.20, 25.0, 2.0e6, 45.0

if __name__ == "__main__":
    rng = random.Random(7)
    peak = HEATING / (CONDUCTIVITY * ((math.pi / WIDTH) ** 2 + (math.pi / HEIGHT) ** 2))
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    with open(folder / "thermocouples.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "y", "celsius"])
        for x in (0.06, 0.13, 0.22):
            for y in (0.05, 0.09, 0.16):
                rise = peak * math.sin(math.pi * x / WIDTH) * math.sin(math.pi * y / HEIGHT)
                writer.writerow([x, y, round(AMBIENT + rise + rng.gauss(0, 0.4), 1)])
