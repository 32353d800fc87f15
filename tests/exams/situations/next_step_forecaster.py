import torch
import torch.nn as nn

torch.manual_seed(0)
N, T = 256, 41
t = torch.arange(T + 1).float()
W = torch.sin(t * (0.2 + 0.3 * torch.rand(N, 1)) + 6 * torch.rand(N, 1)) + 0.1 * torch.randn(N, T + 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 24, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, x):
        out = self.head(self.rnn(x.unsqueeze(-1))[0])
        return out[..., 0], out[..., 1]


def nll(out, y):
    mu, logvar = out
    return 0.5 * (logvar + (y - mu) ** 2 / logvar.exp()).mean()


x, y = W[:, :-1], W[:, 1:]
model = Net()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(80):
    i = torch.randperm(200)[:32]
    xb, yb = x[i], y[i]
    loss = nll(model(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, loss.item())
model.eval()
with torch.no_grad():
    xb, yb = x[200:], y[200:]
    print("val", (nll(model(xb), yb)).item())
