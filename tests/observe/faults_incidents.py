"""Scripts in which a scale, a sum, a limit, a rate or a decay does harm, and sound ones that have it on purpose."""

from faults import Fault

TABLE = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
n = 800
age = 20 + 60 * torch.rand(n, 1)
income = 20000 + 80000 * torch.rand(n, 1)
rooms = torch.randint(1, 9, (n, 1)).float()
area = 30 + 200 * torch.rand(n, 1)
x = torch.cat([age, income, rooms, area], 1)
y = (0.02 * age + income / 50000 + 0.3 * rooms + area / 100) + 0.1 * torch.randn(n, 1)
train = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for epoch in range(8):
    for inputs, targets in train:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
"""

PIXELS = """import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images * 255 / 16, dtype=torch.float32).unsqueeze(1)
labels = torch.tensor(digits.target)
train = DataLoader(TensorDataset(images[:1500], labels[:1500]), batch_size=50, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.hidden = nn.Linear(16 * 64, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv(x)).flatten(1)
        return self.out(F.relu(self.hidden(x)))


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for epoch in range(6):
    for x, y in train:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss", loss.item())
"""

CURVE = """import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(1280, 6)
y = torch.sin(x).sum(1, keepdim=True)
train = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
net = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
for epoch in range(8):
    for inputs, targets in train:
        opt.zero_grad()
        loss = F.mse_loss(net(inputs), targets)
        loss.backward()
        opt.step()
    print("epoch", epoch, "loss", loss.item() / len(inputs))
"""

CLASSES = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(2000, 20)
y = (x @ torch.randn(20, 5)).argmax(1)
train = DataLoader(TensorDataset(x, y), batch_size=100, shuffle=True)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(10):
    for inputs, labels in train:
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
"""

VARIATIONAL = """import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
images = torch.tensor(load_digits().data / 16, dtype=torch.float32)
train = DataLoader(TensorDataset(images), batch_size=64, shuffle=True)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(64, 64)
        self.mu = nn.Linear(64, 8)
        self.logvar = nn.Linear(64, 8)
        self.decode = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x):
        h = F.relu(self.encode(x))
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.decode(z)), mu, logvar


model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(8):
    total = 0.0
    for (x,) in train:
        recon, mu, logvar = model(x)
        bce = F.binary_cross_entropy(recon, x, reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = bce + kld
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(images):.4f}")
"""

LETTERS = """import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
text = ("the quick brown fox jumps over the lazy dog. " * 60)
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])
block = 32


class GPT(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.tok = nn.Embedding(len(chars), width)
        self.pos = nn.Embedding(block, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(chars))

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        h = self.tok(x) + self.pos(torch.arange(x.shape[1]))
        return self.head(self.blocks(h, mask=mask, is_causal=True))


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(150):
    ix = torch.randint(len(data) - block - 1, (16,))
    x = torch.stack([data[i : i + block] for i in ix])
    y = torch.stack([data[i + 1 : i + block + 1] for i in ix])
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f}")
"""

ADAM = "torch.optim.Adam(model.parameters(), lr=1e-2)"
SGD = "torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)"
CLIP = (
    "        loss.backward()\n",
    "        loss.backward()\n        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)\n",
)
SUM = ("mse_loss(net(inputs), targets)", 'mse_loss(net(inputs), targets, reduction="sum")')


def rate(new: str) -> tuple[tuple[str, str], ...]:
    return ((ADAM, new),)


HARMFUL = [
    Fault("data.not_normalized", TABLE, (), name="a table in raw units under SGD"),
    Fault("data.not_normalized", PIXELS, (), strict=False, name="raw pixels under SGD"),
    Fault("loss.reduction", CURVE, (SUM,), "F.mse_loss", name="a summed squared error"),
    Fault(
        "loss.reduction",
        CLASSES,
        (("nn.CrossEntropyLoss()", 'nn.CrossEntropyLoss(reduction="sum")'), *rate(SGD)),
        "criterion(model(inputs)",
        name="a summed cross-entropy",
    ),
    Fault("train.clip_always_active", CLASSES, (CLIP, *rate(SGD)), "clip_grad_norm_", name="a limit far too low"),
    Fault(
        "hp.lr_too_low", CLASSES, rate("torch.optim.Adam(model.parameters(), lr=1e-7)"), "optim.Adam", name="low, Adam"
    ),
    Fault("hp.lr_too_low", CLASSES, rate("torch.optim.SGD(model.parameters(), lr=1e-6)"), "optim.SGD", name="low, SGD"),
    Fault(
        "hp.lr_too_high", CLASSES, rate("torch.optim.SGD(model.parameters(), lr=50.0)"), "optim.SGD", name="high, SGD"
    ),
    Fault(
        "hp.lr_too_high", CLASSES, rate("torch.optim.Adam(model.parameters(), lr=1.0)"), "optim.Adam", name="high, Adam"
    ),
    Fault(
        "hp.weight_decay", CLASSES, rate("torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=50.0)"), name="decay"
    ),
    Fault(
        "train.frozen_params",
        CLASSES,
        (
            (
                "criterion = ",
                "for p in model[2].parameters():\n    p.requires_grad = False\ncriterion = ",
            ),
            ("Adam(model.parameters()", "Adam([p for p in model.parameters() if not p.requires_grad]"),
        ),
        "torch.optim.Adam",
        name="an optimiser over what is frozen",
    ),
]
SOUND = {
    "pixels scaled in the model": Fault("", PIXELS, (("self.conv(x)", "self.conv(x / 255 - 0.2)"),)),
    "a table behind batch norm": Fault("", TABLE, (("nn.Sequential(", "nn.Sequential(nn.BatchNorm1d(4), "),)),
    "a VAE that sums": Fault("", VARIATIONAL, ()),
    "a sum at a rate for it": Fault("", CURVE, (SUM, ("lr=0.02", "lr=3e-4"))),
    "a GPT that clips": Fault("", LETTERS, ()),
    "a tight limit under Adam": Fault("", CLASSES, ((CLIP[0], CLIP[1].replace("1e-3", "0.1")),)),
    "a small rate that learns": Fault("", CLASSES, rate("torch.optim.Adam(model.parameters(), lr=3e-4)")),
    "AdamW with its decay": Fault("", CLASSES, rate("torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.1)")),
}
