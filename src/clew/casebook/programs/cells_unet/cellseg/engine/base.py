import abc
import logging

import torch

log = logging.getLogger("cellseg")


class Engine(abc.ABC):
    def __init__(self, model, loss, optimizer, scheduler):
        self.model, self.loss = model, loss
        self.optimizer, self.scheduler = optimizer, scheduler

    @abc.abstractmethod
    def reset_metrics(self): ...

    @abc.abstractmethod
    def update_metrics(self, logits, targets): ...

    @abc.abstractmethod
    def metrics(self): ...

    def train_epoch(self, loader):
        self.model.train()
        total = 0.0
        for inputs, targets in loader:
            logits = self.model(inputs)
            loss = self.loss(logits, targets)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            total += loss.item()
        return total / len(loader)

    @torch.inference_mode()
    def evaluate(self, loader):
        self.model.eval()
        self.reset_metrics()
        total = 0.0
        for inputs, targets in loader:
            logits = self.model(inputs)
            total += self.loss(logits, targets).item()
            self.update_metrics(logits, targets)
        return total / len(loader), self.metrics()

    def run(self, train_loader, val_loader, epochs):
        for epoch in range(1, epochs + 1):
            train_loss = self.train_epoch(train_loader)
            val_loss, metrics = self.evaluate(val_loader)
            shown = " ".join(f"{name}={value:.4f}" for name, value in metrics.items())
            log.info("epoch %d/%d train_loss=%.4f val_loss=%.4f %s", epoch, epochs, train_loss, val_loss, shown)
        return metrics
