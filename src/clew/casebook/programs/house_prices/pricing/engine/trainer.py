"""The loop that every task shares."""

import torch


class BaseTrainer:
    def __init__(self, model, optimizer, scheduler, train_loader, val_loader, clip_grad=None):
        self.model = model
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.clip_grad = clip_grad

    def compute_loss(self, batch):
        raise NotImplementedError

    def validation_metrics(self, outputs, targets):
        raise NotImplementedError

    def train_step(self, batch):
        self.optimizer.zero_grad()
        loss = self.compute_loss(batch)
        loss.backward()
        if self.clip_grad:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_grad)
        self.optimizer.step()
        self.scheduler.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        outputs, targets = [], []
        for inputs, target in self.val_loader:
            outputs.append(self.model(inputs))
            targets.append(target)
        return self.validation_metrics(torch.cat(outputs), torch.cat(targets))

    def fit(self, epochs):
        metrics = {}
        for epoch in range(epochs):
            self.model.train()
            losses = [self.train_step(batch) for batch in self.train_loader]
            metrics = self.validate()
            shown = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
            print(f"epoch {epoch + 1:02d}  train_loss {sum(losses) / len(losses):.4f}  {shown}")
        return metrics
