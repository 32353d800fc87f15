"""Invent place names in four styles: data/<style>.txt, one name per line."""

import random
from pathlib import Path

STYLES = {
    "coastal": (["ma", "lo", "ri", "na", "sel", "ta", "vi", "ora"], ["mar", "lia", "nova", "rina"]),
    "highland": (["dun", "bra", "ken", "glo", "mor", "tar", "inve", "ach"], ["gar", "lach", "drum", "ness"]),
    "river": (["wes", "thor", "ash", "bri", "lang", "nor", "hol", "wick"], ["ford", "bridge", "mouth", "well"]),
    "steppe": (["kar", "bol", "tash", "uz", "aks", "yar", "zhan", "ur"], ["abad", "kent", "stan", "tau"]),
}


def name(style, rng):
    starts, ends = STYLES[style]
    if rng.random() < 0.1:
        starts = [s for other, _ in STYLES.values() for s in other]
    word = "".join(rng.choices(starts, k=rng.randint(1, 3)))
    if rng.random() < 0.55:
        word += rng.choice(ends)
    if rng.random() < 0.3:
        i = rng.randrange(len(word))
        word = word[:i] + rng.choice("aeioulnr") + word[i + 1 :]
    return word


if __name__ == "__main__":
    rng = random.Random(21)
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    seen = set()
    for style in STYLES:
        made = []
        while len(made) < 420:
            candidate = name(style, rng)
            if candidate not in seen:
                seen.add(candidate)
                made.append(candidate)
        (folder / f"{style}.txt").write_text("\n".join(made) + "\n")
