import torch


def parameter_groups(model, weight_decay):
    """Matrices decay, biases and norms do not."""
    decay = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": decay, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]


def build_optimizer(model, options):
    groups = parameter_groups(model, options["weight_decay"])
    if options["name"] == "adamw":
        return torch.optim.AdamW(groups, lr=options["lr"])
    if options["name"] == "sgd":
        return torch.optim.SGD(groups, lr=options["lr"], momentum=0.9)
    raise ValueError(f"unknown optimizer {options['name']!r}")


def build_scheduler(optimizer, options, steps_per_epoch):
    """Linear warm-up, then cosine; stepped once per batch."""
    warmup = options["warmup_epochs"] * steps_per_epoch
    total = options["epochs"] * steps_per_epoch
    return torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, 1.0, total_iters=warmup),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total - warmup),
        ],
        milestones=[warmup],
    )
