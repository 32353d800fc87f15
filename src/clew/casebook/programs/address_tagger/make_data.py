"""Write sentences with tagged names, streets and towns in two-column form: data/{train,dev}.conll."""

import random
from pathlib import Path

FIRST = "anna bert clara david edith frank greta henry irene jonas karla lukas marta nils olga paul".split()
LAST = "abel berger cole dunn ehlers foster gray hahn irving jost keller lang moss nolan ott price".split()
STREET = "oak mill church station castle garden bridge market river school park harbour".split()
KIND = "street road lane square avenue".split()
TOWN = "ashby brent corfe denham exton fairley girton hexham ilford kelso".split()
TEMPLATES = [
    "please send the parcel to {P} at {S} in {T}",
    "{P} lives on {S} in {T}",
    "my cousin {P} moved from {T} to {T2} last year",
    "the letter for {P} went to {S} instead",
    "we met {P} at the market in {T} on friday",
    "is {S} near the river in {T}",
    "{P} and {P2} bought the old mill near {T}",
    "the price of the house on {S} in {T} was a gray area",
]


def person(rng):
    words = [rng.choice(FIRST)] + ([rng.choice(LAST)] if rng.random() < 0.6 else [])
    return list(zip(words, ["B-PER"] + ["I-PER"] * (len(words) - 1)))


def street(rng):
    words = [rng.choice(STREET), rng.choice(KIND)] + ([str(rng.randint(1, 99))] if rng.random() < 0.5 else [])
    return list(zip(words, ["B-STR"] + ["I-STR"] * (len(words) - 1)))


def town(rng):
    words = ["new"] if rng.random() < 0.2 else []
    words.append(rng.choice(TOWN))
    return list(zip(words, ["B-TWN"] + ["I-TWN"] * (len(words) - 1)))


MAKERS = {"P": person, "S": street, "T": town}


def sentence(rng):
    pairs = []
    for word in rng.choice(TEMPLATES).split():
        pairs += MAKERS[word[1]](rng) if word.startswith("{") else [(word, "O")]
    return pairs


if __name__ == "__main__":
    rng = random.Random(41)
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    unique = {}
    while len(unique) < 1250:
        unique[tuple(sentence(rng))] = True
    sentences = list(unique)
    for split, chosen in [("train", sentences[:1000]), ("dev", sentences[1000:])]:
        with open(folder / f"{split}.conll", "w") as file:
            for pairs in chosen:
                file.writelines(f"{word}\t{tag}\n" for word, tag in pairs)
                file.write("\n")
