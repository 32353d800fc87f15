"""Write a made-up log of shown advertisements in the order in which they were shown: data/log.csv."""

import csv
import math
import random
from pathlib import Path

if __name__ == "__main__":
    rng = random.Random(77)
    users, ads, sites = 150, 60, 12
    eager = [rng.gauss(0, 0.9) for _ in range(users)]
    appeal = [rng.gauss(0, 0.9) for _ in range(ads)]
    taste = [[rng.gauss(0, 1.0) for _ in range(2)] for _ in range(users)]
    topic = [[rng.gauss(0, 1.0) for _ in range(2)] for _ in range(ads)]
    place = [rng.gauss(0, 0.6) for _ in range(sites)]
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    with open(folder / "log.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["hour", "user", "ad", "site", "seconds_on_page", "clicked"])
        for row in range(48000):
            user, ad, site = rng.randrange(users), rng.randrange(ads), rng.randrange(sites)
            hour = row // 400 % 24
            stay = rng.lognormvariate(3.0, 0.8)
            score = -0.9 + eager[user] + appeal[ad] + place[site] + 0.5 * (math.log(stay) - 3.0)
            score += sum(a * b for a, b in zip(taste[user], topic[ad])) + 0.4 * math.sin(2 * math.pi * hour / 24)
            clicked = int(rng.random() < 1 / (1 + math.exp(-score)))
            writer.writerow([hour, f"u{user:03d}", f"ad{ad:02d}", f"site{site}", round(stay, 1), clicked])
