"""Handwritten digits with a small network."""

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
x_train, x_val, y_train, y_val = train_test_split(images / 16.0, labels, test_size=0.2, random_state=0, stratify=labels)
train = TensorDataset(torch.tensor(x_train, dtype=torch.float32), torch.tensor(y_train))
val = TensorDataset(torch.tensor(x_val, dtype=torch.float32), torch.tensor(y_val))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return torch.softmax(self.head(self.body(x)), dim=1)


model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(6):
    model.train()
    total = 0.0
    for x, y in DataLoader(train, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(val, batch_size=64))
    print(f"epoch {epoch} train_loss {total / len(train):.4f} val_acc {right / len(val):.4f}")
