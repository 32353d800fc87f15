"""Write the daily number of people in bed with influenza at a made-up garrison: data/cases.csv (day, infected)."""

import csv
import random
from pathlib import Path

PEOPLE, CONTACT, RECOVERY, FIRST = 12000, 0.55, 0.2, 60

if __name__ == "__main__":
    rng = random.Random(1918)
    s, i = PEOPLE - FIRST, float(FIRST)
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    with open(folder / "cases.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["day", "infected"])
        for day in range(46):
            writer.writerow([day, max(0, round(i * rng.gauss(1, 0.04)))])
            for _ in range(100):
                caught = CONTACT * s * i / PEOPLE / 100
                healed = RECOVERY * i / 100
                s, i = s - caught, i + caught - healed
