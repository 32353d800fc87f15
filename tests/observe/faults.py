"""The smallest scripts that have a fault: a sound one, and for each cause the change that breaks it.

`line` is the text of the line where the fault stands, "" where it has none. `strict` says that the cause must be found
as a mechanism; otherwise it must be among the leading explanations. `sign` is for what does these small scripts no harm
(Adam does not mind a scale): the reading must be there, and no more is asked.
"""

from typing import NamedTuple

CLASSIFIER = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(600, 10)
y = (x @ torch.randn(10, 4)).argmax(1)
train = DataLoader(TensorDataset(x[:500], y[:500]), batch_size=25, shuffle=True)
val = DataLoader(TensorDataset(x[500:], y[500:]), batch_size=50)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loss_function = nn.CrossEntropyLoss()
for epoch in range(4):
    model.train()
    for inputs, labels in train:
        optimizer.zero_grad()
        loss = loss_function(model(inputs), labels)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(inputs).argmax(1) == labels).sum().item() for inputs, labels in val)
    print(f"epoch {epoch} loss {loss.item():.4f} accuracy {right / 100:.3f}")
"""

REGRESSOR = """import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(400, 6)
y = torch.sin(x).sum(1, keepdim=True)
train = DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 48)
        self.second = nn.Linear(48, 48)
        self.head = nn.Linear(48, 1)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        h = torch.tanh(self.second(h))
        return self.head(h)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for epoch in range(8):
    for inputs, targets in train:
        opt.zero_grad()
        prediction = net(inputs)
        loss = F.mse_loss(prediction, targets)
        loss.backward()
        opt.step()
    print("epoch", epoch, "loss", loss.item())
"""


class Fault(NamedTuple):
    cause: str
    script: str
    changes: tuple[tuple[str, str], ...]
    line: str = ""
    strict: bool = True
    name: str = ""
    sign: str = ""

    def text(self) -> str:
        text = self.script
        for old, new in self.changes:
            if old not in text:
                raise ValueError(f"{self.cause}: {old!r} is not in the script")
            text = text.replace(old, new)
        return text

    def number(self) -> int:
        """The line of the fault, from 1; 0 when it has none."""
        if not self.line:
            return 0
        return next(n for n, row in enumerate(self.text().splitlines(), 1) if self.line in row)


FAULTS = [
    Fault(
        "loss.double_softmax",
        CLASSIFIER,
        (("nn.Linear(64, 4))", "nn.Linear(64, 4), nn.Softmax(dim=1))"),),
        "loss = loss_function(",
    ),
    Fault(
        "loss.missing_activation",
        CLASSIFIER,
        (("nn.CrossEntropyLoss()", "nn.NLLLoss()"),),
        "loss = loss_function(",
    ),
    Fault(
        "loss.wrong_dim",
        CLASSIFIER,
        (
            ("nn.CrossEntropyLoss()", "nn.NLLLoss()"),
            ("loss_function(model(inputs), labels)", "loss_function(torch.log_softmax(model(inputs), dim=0), labels)"),
        ),
        "log_softmax",
    ),
    Fault(
        "loss.wrong_sign",
        CLASSIFIER,
        (("        loss.backward()", "        (-loss).backward()"),),
        "(-loss).backward()",
    ),
    Fault("loss.broadcast", REGRESSOR, (("net(inputs)", "net(inputs).squeeze(1)"),), "F.mse_loss"),
    Fault(
        "loss.disconnected",
        REGRESSOR,
        (
            (
                "        loss = F.mse_loss(prediction, targets)",
                "        loss = torch.tensor(F.mse_loss(prediction, targets).item(), requires_grad=True)",
            ),
        ),
        "loss.backward()",
    ),
    Fault(
        "loss.reduction",
        REGRESSOR,
        (("mse_loss(prediction, targets)", 'mse_loss(prediction, targets, reduction="sum")'), ("lr=0.05", "lr=1e-4")),
        "F.mse_loss",
        sign="loss_reduction=sum",
    ),
    Fault(
        "data.labels_masked",
        CLASSIFIER,
        (("argmax(1)\ntrain", "argmax(1)\ny[:] = -100\ntrain"),),
        "loss = loss_function(",
    ),
    Fault(
        "data.not_normalized",
        CLASSIFIER,
        (
            ("TensorDataset(x[:500]", "TensorDataset(500 + 300 * x[:500]"),
            ("TensorDataset(x[500:]", "TensorDataset(500 + 300 * x[500:]"),
        ),
        sign="input_scale=raw",
    ),
    Fault(
        "data.input_destroyed",
        CLASSIFIER,
        (
            ("TensorDataset(x[:500]", "TensorDataset(0 * x[:500]"),
            ("TensorDataset(x[500:]", "TensorDataset(0 * x[500:]"),
        ),
    ),
    Fault(
        "data.stale_batch",
        CLASSIFIER,
        (
            ("for epoch in range(4):", "inputs, labels = next(iter(train))\nfor epoch in range(4):"),
            ("    for inputs, labels in train:", "    for _ in range(len(train)):"),
        ),
        strict=False,
        name="the batch is fetched once before the loop",
    ),
    Fault(
        "data.not_shuffled",
        CLASSIFIER,
        (
            ("argmax(1)\ntrain", "argmax(1)\nx, y = x[y.argsort()], y[y.argsort()]\ntrain"),
            ("shuffle=True", "shuffle=False"),
        ),
    ),
    Fault("data.nonfinite", CLASSIFIER, (("argmax(1)\ntrain", 'argmax(1)\nx[7, 3] = float("nan")\ntrain'),)),
    Fault(
        "data.class_imbalance",
        CLASSIFIER,
        (("argmax(1)\ntrain", "argmax(1)\ny[torch.rand(600) < 0.97] = 0\ntrain"),),
        strict=False,
    ),
    Fault("data.leak_split", CLASSIFIER, (("TensorDataset(x[500:], y[500:])", "TensorDataset(x[400:], y[400:])"),)),
    Fault("train.missing_zero_grad", CLASSIFIER, (("        optimizer.zero_grad()\n", ""),), "loss.backward()"),
    Fault(
        "train.zero_grad_misplaced",
        CLASSIFIER,
        (
            ("        optimizer.zero_grad()\n", ""),
            ("        loss.backward()\n", "        loss.backward()\n        optimizer.zero_grad()\n"),
        ),
        "optimizer.zero_grad()",
    ),
    Fault("train.step_missing", CLASSIFIER, (("        optimizer.step()\n", ""),), "loss.backward()"),
    Fault(
        "train.params_not_in_optimizer",
        CLASSIFIER,
        (("Adam(model.parameters()", "Adam(model[0].parameters()"),),
        "torch.optim.Adam",
    ),
    Fault(
        "train.frozen_params",
        CLASSIFIER,
        (
            (
                "optimizer = torch",
                "for p in model.parameters():\n    p.requires_grad = False\n"
                "model[3].bias.requires_grad = True\noptimizer = torch",
            ),
        ),
        strict=False,
    ),
    Fault(
        "train.eval_mode_in_training",
        CLASSIFIER,
        (("    model.train()\n", "    model.eval()\n"),),
        "loss_function(model(inputs)",
    ),
    Fault("train.train_mode_in_eval", CLASSIFIER, (("    model.eval()\n", ""),), "right = sum("),
    Fault(
        "train.optimizer_recreated",
        CLASSIFIER,
        (
            (
                "        optimizer.zero_grad()\n",
                "        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)\n        optimizer.zero_grad()\n",
            ),
        ),
        "        optimizer = torch.optim.Adam",
    ),
    Fault(
        "train.scheduler_cadence",
        CLASSIFIER,
        (
            (
                "loss_function = nn",
                "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)\nloss_function = nn",
            ),
            ("        optimizer.step()\n", "        optimizer.step()\n        scheduler.step()\n"),
        ),
        "scheduler.step()",
    ),
    Fault(
        "train.clip_misplaced",
        CLASSIFIER,
        (
            (
                "        loss.backward()\n        optimizer.step()\n",
                "        loss.backward()\n        optimizer.step()\n"
                "        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
            ),
        ),
        "clip_grad_norm_",
    ),
    Fault(
        "train.clip_always_active",
        CLASSIFIER,
        (
            (
                "        loss.backward()\n",
                "        loss.backward()\n        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)\n",
            ),
        ),
        sign="clip_activity=always",
    ),
    Fault(
        "train.graph_retained",
        CLASSIFIER,
        (
            ("for epoch in range(4):", "total = 0.0\nfor epoch in range(4):"),
            ("        optimizer.step()\n", "        optimizer.step()\n        total = total + loss\n"),
        ),
    ),
    Fault(
        "train.bn_small_batch",
        CLASSIFIER,
        (("nn.ReLU(), nn.Dropout(0.1)", "nn.BatchNorm1d(64), nn.ReLU()"), ("batch_size=25", "batch_size=2")),
        strict=False,
    ),
    Fault(
        "train.swallowed_exception",
        CLASSIFIER,
        (
            (
                "        loss = loss_function(model(inputs), labels)\n        loss.backward()\n"
                "        optimizer.step()\n",
                "        try:\n            if epoch:\n                labels = labels + 3\n"
                "            loss = loss_function(model(inputs), labels)\n            loss.backward()\n"
                "            optimizer.step()\n        except Exception:\n            continue\n",
            ),
        ),
    ),
    Fault(
        "arch.dead_relu",
        CLASSIFIER,
        (("optimizer = torch", "nn.init.constant_(model[0].bias, -100.0)\noptimizer = torch"),),
    ),
    Fault(
        "arch.zero_init",
        CLASSIFIER,
        (
            (
                "optimizer = torch",
                "for layer in (model[0], model[3]):\n    nn.init.constant_(layer.weight, 0.01)\noptimizer = torch",
            ),
        ),
    ),
    Fault(
        "arch.saturated_activation",
        REGRESSOR,
        (
            (
                "net = Net()\n",
                "net = Net()\nwith torch.no_grad():\n    net.first.weight.mul_(400)\n    net.second.weight.mul_(400)\n",
            ),
        ),
        strict=False,
    ),
    Fault(
        "arch.unregistered_modules",
        REGRESSOR,
        (
            ("        self.second = nn.Linear(48, 48)\n", "        self.blocks = [nn.Linear(48, 48)]\n"),
            ("self.second(h)", "self.blocks[0](h)"),
        ),
    ),
    Fault(
        "arch.unused_parameters",
        REGRESSOR,
        (
            (
                "        self.head = nn.Linear(48, 1)\n",
                "        self.head = nn.Linear(48, 1)\n        self.spare = nn.Linear(48, 48)\n",
            ),
        ),
    ),
    Fault(
        "arch.missing_nonlinearity",
        REGRESSOR,
        (("torch.tanh(self.first(x))", "self.first(x)"), ("torch.tanh(self.second(h))", "self.second(h)")),
    ),
    Fault("hp.lr_too_low", CLASSIFIER, (("lr=1e-2", "lr=1e-8"),), strict=False),
    Fault("hp.lr_too_high", REGRESSOR, (("lr=0.05, momentum=0.9", "lr=30.0"),), strict=False),
    Fault(
        "num.log_of_zero",
        REGRESSOR,
        (
            (
                "        loss = F.mse_loss(prediction, targets)",
                "        loss = F.mse_loss(prediction, targets) - torch.log(torch.relu(prediction - 100)).mean()",
            ),
        ),
        "torch.log",
    ),
]
