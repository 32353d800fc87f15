"""Write made-up support notes with their tags as JSON lines."""

import json
import random
from pathlib import Path

TAGS = {
    "billing": ["invoice", "refund", "charged", "payment", "card", "price"],
    "delivery": ["parcel", "courier", "late", "address", "tracking", "shipped"],
    "quality": ["broken", "scratched", "faulty", "cracked", "noise", "leaking"],
    "account": ["password", "login", "email", "locked", "profile", "username"],
    "praise": ["thanks", "great", "friendly", "quick", "helpful", "pleased"],
    "cancel": ["cancel", "contract", "terminate", "stop", "leave", "notice"],
}
FILLER = (
    "the a my your our it this that was is has been again today yesterday week customer called about said "
    "please and but with for from order asked wants still after before item number when they we him her told"
).split()


def note(rng):
    tags = [tag for tag in TAGS if rng.random() < 0.27]
    words = rng.choices(FILLER, k=rng.randint(8, 18))
    for tag in tags:
        words += rng.sample(TAGS[tag], rng.randint(1, 3))
    if rng.random() < 0.12:
        words.append(rng.choice(TAGS[rng.choice(list(TAGS))]))
    rng.shuffle(words)
    return {"text": " ".join(words), "tags": tags}


if __name__ == "__main__":
    rng = random.Random(5)
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    notes = [note(rng) for _ in range(2000)]
    for split, chosen in [("train", notes[:1500]), ("val", notes[1500:])]:
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in chosen))
