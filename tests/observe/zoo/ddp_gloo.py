"""Two processes on gloo, started by torchrun: DistributedDataParallel, a distributed sampler, batch norm per rank."""

import hashlib
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from common import seed_all, state_digest
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    seed_all(1000 + int(os.environ["LOCAL_RANK"]))

    made = torch.Generator().manual_seed(9)
    x = torch.randn(512, 10, generator=made)
    y = (x @ torch.randn(10, 1, generator=made)).squeeze(1) + 0.1 * torch.randn(512, generator=made)
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, shuffle=True, seed=0)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)

    net = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs).squeeze(1), targets)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch} loss {total.item() / world / len(loader):.5f}", flush=True)

    digests = [None] * world
    dist.all_gather_object(digests, state_digest(model, optimizer))
    if rank == 0:
        print("DIGEST", hashlib.sha256("".join(digests).encode()).hexdigest(), flush=True)
    dist.barrier()
    del model, optimizer
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
