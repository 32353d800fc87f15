import string

PAD, BOS, SEP, EOS = range(4)
CHARS = string.ascii_lowercase + " ?.,"
STOI = {c: i + 4 for i, c in enumerate(CHARS)}
ITOS = {i: c for c, i in STOI.items()}
VOCAB_SIZE = len(CHARS) + 4


def encode(text):
    return [STOI[c] for c in text]


def decode(ids):
    return "".join(ITOS.get(int(i), "") for i in ids)
