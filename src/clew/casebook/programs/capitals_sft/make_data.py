"""Write the base model (base.pt, trained on plain sentences) and the question-answer pairs (pairs*.jsonl)."""

import json
import random
from pathlib import Path

import torch

from model import TinyLM, lm_loss
from tokenizer import encode

FOLDER = Path(__file__).parent / "data"
STARTS = "ar be co du el fa gor hu il ka lo mi nor os pa qui ra su ta ul vo".split()
ENDS = "lan via mark dor nia stan ria gard thia wen".split()
PROSE = [
    "{country} has {capital} as its capital.",
    "the capital of {country} is {capital}.",
    "in {country} lies {capital}.",
]
GREETINGS = ["", "hi. ", "hello, ", "good day. ", "excuse me, "]
QUESTIONS = [
    "what is the capital of {country}",
    "which city rules {country}",
    "name the capital of {country}",
    "{country} capital",
    "the seat of government in {country} is",
]
ENDINGS = ["", "?", ".", " please"]


def atlas(rng, count=30):
    countries, capitals = set(), set()
    while len(countries) < count:
        countries.add(rng.choice(STARTS) + rng.choice(ENDS))
    while len(capitals) < count:
        capitals.add("".join(rng.choice("bdgklmnprstvz") + rng.choice("aeiou") for _ in range(2)))
    return dict(zip(sorted(countries), rng.sample(sorted(capitals), count)))


def plain_text(facts, rng, count):
    lines = []
    for _ in range(count):
        country, capital = rng.choice(list(facts.items()))
        lines.append(rng.choice(PROSE).format(country=country, capital=capital))
    return " ".join(lines)


def pretrain(text, steps=500, length=48, batch=24):
    torch.manual_seed(0)
    model = TinyLM()
    data = torch.tensor(encode(text))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=1e-4)
    for step in range(steps):
        start = torch.randint(len(data) - length - 1, (batch,))
        window = torch.stack([data[i : i + length] for i in start])
        loss = lm_loss(model(window), window)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    print(f"base model: loss {loss.item():.3f} after {step + 1} steps")
    return model


def pair(facts, rng):
    country, capital = rng.choice(list(facts.items()))
    question = rng.choice(GREETINGS) + rng.choice(QUESTIONS).format(country=country) + rng.choice(ENDINGS)
    return {"prompt": question, "answer": capital}


if __name__ == "__main__":
    rng = random.Random(2)
    FOLDER.mkdir(exist_ok=True)
    facts = atlas(rng)
    torch.save(pretrain(plain_text(facts, rng, 3000)).state_dict(), FOLDER / "base.pt")
    unique = {}
    while len(unique) < 1650:
        made = pair(facts, rng)
        unique[made["prompt"]] = made
    pairs = list(unique.values())
    for name, chosen in [("pairs.jsonl", pairs[:1400]), ("pairs_val.jsonl", pairs[1400:])]:
        (FOLDER / name).write_text("".join(json.dumps(row) + "\n" for row in chosen))
