"""Predicts from measurements whether a machine will fail within a week."""

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

rng = np.random.default_rng(0)
n = 2400
table = pd.DataFrame(
    {
        "temperature": rng.normal(70, 8, n),
        "vibration": rng.gamma(2.0, 1.0, n),
        "pressure": rng.normal(5, 1, n),
        "age": rng.uniform(0, 15, n),
        "load": rng.uniform(0, 1, n),
    }
)
risk = 0.05 * (table.temperature - 70) + 0.6 * table.vibration + 0.15 * table.age - 0.4 * (table.pressure - 5)
table["failed"] = (risk + rng.normal(0, 1.2, n) > 2.6).astype(int)
table["repairs"] = rng.poisson(0.1 * table.age)

features = [name for name in table.columns if name != "failed"]
x_train, x_val, y_train, y_val = train_test_split(
    table[features].to_numpy(), table["failed"].to_numpy(), test_size=0.25, random_state=0
)
scaler = StandardScaler().fit(x_train)
x_train = torch.tensor(scaler.transform(x_train), dtype=torch.float32)
x_val = torch.tensor(scaler.transform(x_val), dtype=torch.float32)
y_train = torch.tensor(y_train, dtype=torch.float32)
y_val = torch.tensor(y_val, dtype=torch.float32)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(len(features), 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loss_fn = nn.BCEWithLogitsLoss()
for epoch in range(12):
    model.train()
    order = torch.randperm(len(x_train))
    for start in range(0, len(order), 64):
        rows = order[start : start + 64]
        optimizer.zero_grad()
        loss = loss_fn(model(x_train[rows]).squeeze(1), y_train[rows])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        logits = model(x_val).squeeze(1)
        accuracy = ((logits > 0).float() == y_val).float().mean().item()
    print(f"epoch {epoch} loss {loss.item():.4f} val_loss {loss_fn(logits, y_val).item():.4f} val_acc {accuracy:.4f}")
