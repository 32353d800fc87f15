def spans(tags):
    """Entities of one sentence as (kind, first, last + 1)."""
    found, start, kind = [], None, None
    for i, tag in enumerate([*tags, "O"]):
        if start is not None and tag != f"I-{kind}":
            found.append((kind, start, i))
            start = None
        if tag.startswith("B-"):
            start, kind = i, tag[2:]
    return set(found)


class EntityF1:
    def __init__(self):
        self.hits = self.predicted = self.actual = 0

    def add(self, predicted, actual):
        guess, truth = spans(predicted), spans(actual)
        self.hits += len(guess & truth)
        self.predicted += len(guess)
        self.actual += len(truth)

    def value(self):
        return 2 * self.hits / max(1, self.predicted + self.actual)
