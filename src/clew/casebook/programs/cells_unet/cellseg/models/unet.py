import torch.nn as nn

from cellseg.models.blocks import DoubleConv, Up


class UNet(nn.Module):
    def __init__(self, channels, n_in=1, n_out=1):
        super().__init__()
        self.stem = DoubleConv(n_in, channels[0])
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList([DoubleConv(a, b) for a, b in zip(channels, channels[1:])])
        self.up = nn.ModuleList([Up(b, a) for a, b in zip(channels[-2::-1], channels[:0:-1])])
        self.out = nn.Conv2d(channels[0], n_out, 1)

    def forward(self, x):
        skips = [self.stem(x)]
        for block in self.down:
            skips.append(block(self.pool(skips[-1])))
        x = skips.pop()
        for block in self.up:
            x = block(x, skips.pop())
        return self.out(x)
