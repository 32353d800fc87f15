"""Write film ratings of made-up users: data/ratings.csv (user, film, stars, day)."""

import csv
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    rng = np.random.default_rng(23)
    users, films, rank = 150, 80, 3
    taste = rng.normal(0, 1, (users, rank))
    style = rng.normal(0, 1, (films, rank))
    mood, fame = rng.normal(0, 0.35, users), rng.normal(0, 0.5, films)
    pairs = rng.permutation(users * films)[:6500]
    rows = []
    for day, pair in enumerate(pairs):
        user, film = divmod(int(pair), films)
        stars = 3.3 + mood[user] + fame[film] + 0.55 * taste[user] @ style[film] + rng.normal(0, 0.3)
        rows.append((f"u{user:03d}", f"f{film:03d}", round(float(np.clip(stars, 0.5, 5.0)) * 2) / 2, day // 20))
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    with open(folder / "ratings.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "film", "stars", "day"])
        writer.writerows(rows)
