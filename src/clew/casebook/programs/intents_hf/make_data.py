"""Write utterances for a voice assistant with their intents: data/train.csv, data/test.csv."""

import csv
import random
from pathlib import Path

INTENTS = {
    "alarm": ["wake me at {n}", "set an alarm for {n}", "alarm at {n} {day}", "ring a bell at {n}"],
    "weather": ["will it rain {day}", "weather for {day}", "is it cold in {place} {day}", "do i need a coat {day}"],
    "music": ["play some {genre}", "put on {genre} in the {room}", "i want to hear {genre}", "louder {genre} please"],
    "lights": ["lights on in the {room}", "turn off the lamp in the {room}", "dim the {room}", "{room} brighter"],
    "travel": ["trains to {place} {day}", "book a seat to {place}", "how far is {place}", "bus to {place} at {n}"],
}
SLOTS = {
    "n": [str(n) for n in range(1, 25)],
    "day": "today tomorrow monday tuesday wednesday thursday friday saturday sunday".split(),
    "place": "york bath leeds dover perth cardiff derby truro".split(),
    "genre": "jazz folk rock opera blues piano".split(),
    "room": "kitchen hall bedroom study garage".split(),
}
LEAD = ["", "please ", "hey ", "could you ", "ok "]
TAIL = ["", " now", " thanks", " if you can"]


def utterance(rng):
    intent = rng.choice(list(INTENTS))
    slots = {name: rng.choice(values) for name, values in SLOTS.items()}
    text = rng.choice(LEAD) + rng.choice(INTENTS[intent]).format(**slots) + rng.choice(TAIL)
    return " ".join(word for word in text.split() if rng.random() < 0.7), intent


if __name__ == "__main__":
    rng = random.Random(8)
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    unique = {}
    while len(unique) < 1400:
        text, intent = utterance(rng)
        if len(text.split()) > 1:
            unique.setdefault(text, intent)
    rows = list(unique.items())
    for split, chosen in [("train", rows[:1100]), ("test", rows[1100:])]:
        with open(folder / f"{split}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "intent"])
            writer.writerows(chosen)
