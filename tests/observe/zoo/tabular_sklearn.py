"""A table through pandas and scikit-learn (split, scaler) to a small network, scored by scikit-learn."""

import numpy as np
import pandas as pd
import torch
from common import print_digest, seed_all
from sklearn.datasets import make_classification
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

seed_all(0)

features, target = make_classification(600, 12, n_informative=6, class_sep=1.5, random_state=0)
table = pd.DataFrame(features, columns=[f"f{i}" for i in range(12)]).assign(target=target)
table.loc[np.random.choice(600, 20, replace=False), "f3"] = np.nan
table["f3"] = table["f3"].fillna(0.0)

X_train, X_test, y_train, y_test = train_test_split(
    table.drop(columns="target"), table["target"], test_size=0.25, stratify=table["target"]
)
scaler = StandardScaler()
X_train = scaler.fit_transform(X_train)
X_test = scaler.transform(X_test)

loader = DataLoader(
    TensorDataset(torch.tensor(X_train, dtype=torch.float32), torch.tensor(y_train.to_numpy(), dtype=torch.float32)),
    batch_size=50,
    shuffle=True,
)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.BCEWithLogitsLoss()

for epoch in range(6):
    model.train()
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = criterion(model(xb).squeeze(-1), yb)
        loss.backward()
        optimizer.step()
    print(f"Epoch {epoch + 1}, Loss: {loss.item():.4f}")

model.eval()
with torch.no_grad():
    scores = torch.sigmoid(model(torch.tensor(X_test, dtype=torch.float32)).squeeze(-1)).numpy()
print("accuracy", accuracy_score(y_test, scores > 0.5), "auc", round(roc_auc_score(y_test, scores), 4))
print_digest(model, optimizer, {"mean": scaler.mean_, "scale": scaler.scale_})
