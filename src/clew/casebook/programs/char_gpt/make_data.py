"""Write recipes in a small made-up cookery language and encode them character by character (data/*.bin)."""

import pickle
import random
from pathlib import Path

import numpy as np

FOOD = ["onion", "carrot", "barley", "apple", "leek", "butter", "honey", "salt", "pepper", "bean", "plum", "oats"]
VERB = ["chop", "boil", "fry", "bake", "stir", "peel"]
TOOL = {"chop": "knife", "boil": "pot", "fry": "pan", "bake": "oven", "stir": "spoon", "peel": "knife"}


def recipe(rng):
    foods = rng.sample(FOOD, 3)
    lines = [f"take {rng.randint(1, 9)} {food}." for food in foods]
    for food in foods:
        verb = rng.choice(VERB)
        lines.append(f"{verb} the {food} with a {TOOL[verb]} for {rng.randint(1, 60)} minutes.")
    lines.append(f"serve the {foods[0]} and the {foods[-1]}.")
    return "\n".join(lines) + "\n\n"


if __name__ == "__main__":
    rng = random.Random(1337)
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    text = {"train": "".join(recipe(rng) for _ in range(600)), "val": "".join(recipe(rng) for _ in range(70))}
    chars = sorted(set(text["train"]) | set(text["val"]))
    stoi = {c: i for i, c in enumerate(chars)}
    for split, content in text.items():
        np.array([stoi[c] for c in content], dtype=np.uint16).tofile(folder / f"{split}.bin")
    with open(folder / "meta.pkl", "wb") as file:
        pickle.dump({"vocab_size": len(chars), "itos": dict(enumerate(chars)), "stoi": stoi}, file)
