"""Pulse regression on two processes with hand-made gradient averaging."""

import argparse
import json
import math
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.utils.data import DataLoader

from comm import average, average_gradients, broadcast_parameters
from model import PulseNet
from simulate import TraceBatches, held_out


def rate_at(step, steps, peak, warmup=20):
    if step < warmup:
        return peak * (step + 1) / warmup
    return 0.5 * peak * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def r2(model, x, y):
    model.eval()
    with torch.no_grad():
        error = ((model(x) - y) ** 2).mean(0)
    return (1 - error / y.var(0)).mean().item()


def run(rank, seed, config):
    torch.manual_seed(1000 * seed + rank)

    model = PulseNet(config["samples"], config["width"])
    broadcast_parameters(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["learning_rate"], weight_decay=config["weight_decay"])

    batches = TraceBatches(config, seed, rank)
    loader = DataLoader(batches, batch_size=None, num_workers=config["workers"])
    x_val, y_val = held_out(config)

    step, steps = 0, config["epochs"] * config["batches_per_epoch"]
    for epoch in range(config["epochs"]):
        batches.set_epoch(epoch)
        model.train()
        epoch_loss = 0.0
        for x, y in loader:
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step, steps, config["learning_rate"])
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model)
            optimizer.step()
            epoch_loss += loss.item() / config["batches_per_epoch"]
            step += 1
        epoch_loss = average(epoch_loss)
        if rank == 0:
            print(f"epoch {epoch} loss {epoch_loss:.4f} val_r2 {r2(model, x_val, y_val):.4f}", flush=True)

    if rank == 0:
        print(f"final val_r2={r2(model, x_val, y_val):.4f}", flush=True)


def init_process(rank, size, store, fn, *args):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    torch.set_num_threads(1)
    fn(rank, *args)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="config.json")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with open(args.config) as file:
        config = json.load(file)

    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        processes = []
        for rank in range(args.processes):
            process = mp.Process(target=init_process, args=(rank, args.processes, store, run, args.seed, config))
            process.start()
            processes.append(process)
        for process in processes:
            process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
