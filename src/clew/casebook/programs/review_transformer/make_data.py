"""Write short product reviews with a star rating of good (1) or bad (0) as JSON lines."""

import json
import random
from pathlib import Path

GOOD = "lovely solid bright cheap clever sturdy comfortable reliable quiet elegant".split()
BAD = "awful flimsy dim pricey clumsy fragile painful unreliable loud ugly".split()
THINGS = "handle screen battery strap lid cable motor button case wheel colour manual".split()
OPEN = ["bought this last month", "a gift from my sister", "used it every day", "second one i own", "it came on time"]
CLOSE = ["that is all", "make of it what you will", "still in the box now", "my cat sleeps on it", "so there it is"]


def clause(rng, positive):
    thing = rng.choice(THINGS)
    if rng.random() < 0.2:
        word = rng.choice(BAD if positive else GOOD)
        return f"the {thing} is not {word}"
    word = rng.choice(GOOD if positive else BAD)
    return f"the {thing} is {rng.choice(['very', 'quite', 'really', ''])} {word}".replace("  ", " ")


def review(rng):
    label = rng.randint(0, 1)
    clauses = rng.choice([1, 1, 3])
    against = clauses // 2 if rng.random() < 0.25 else 0
    parts = [clause(rng, label == 1) for _ in range(clauses - against)]
    parts += [clause(rng, label == 0) for _ in range(against)]
    rng.shuffle(parts)
    if rng.random() < 0.5:
        parts.insert(0, rng.choice(OPEN))
    if rng.random() < 0.5:
        parts.append(rng.choice(CLOSE))
    return {"text": " and ".join(parts), "label": label}


if __name__ == "__main__":
    rng = random.Random(13)
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    unique = {}
    while len(unique) < 2500:
        made = review(rng)
        unique.setdefault(made["text"], made)
    records = list(unique.values())
    for split, chosen in [("train", records[:2000]), ("val", records[2000:])]:
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in chosen))
