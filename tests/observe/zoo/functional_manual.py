"""No module and no optimiser: tensors with gradients, updated by hand, as in a first lecture."""

import torch
import torch.nn.functional as F
from common import print_digest, seed_all

seed_all(1)
g = torch.Generator().manual_seed(2147483647)
words = [a + b + c for a in "bdklmnrst" for b in "aeiou" for c in "lmnrs"]
stoi = {s: i + 1 for i, s in enumerate(sorted(set("".join(words))))}
stoi["."] = 0

X, Y = [], []
for w in words:
    context = [0] * 3
    for ch in w + ".":
        X.append(context)
        Y.append(stoi[ch])
        context = [*context[1:], stoi[ch]]
X, Y = torch.tensor(X), torch.tensor(Y)

C = torch.randn((len(stoi), 4), generator=g)
W1 = torch.randn((12, 40), generator=g) * 0.3
b1 = torch.zeros(40)
W2 = torch.randn((40, len(stoi)), generator=g) * 0.1
b2 = torch.zeros(len(stoi))
parameters = [C, W1, b1, W2, b2]
for p in parameters:
    p.requires_grad = True

for i in range(120):
    ix = torch.randint(0, X.shape[0], (32,), generator=g)
    emb = C[X[ix]]
    h = torch.tanh(emb.view(-1, 12) @ W1 + b1)
    logits = h @ W2 + b2
    loss = F.cross_entropy(logits, Y[ix])
    for p in parameters:
        p.grad = None
    loss.backward()
    lr = 0.1 if i < 80 else 0.05
    for p in parameters:
        p.data += -lr * p.grad
    if i % 40 == 0:
        print(f"{i:4d}/{120}: {loss.item():.4f}")

with torch.no_grad():
    print(F.cross_entropy(torch.tanh(C[X].view(-1, 12) @ W1 + b1) @ W2 + b2, Y).item())
print_digest(parameters, [p.grad for p in parameters], g.get_state())
