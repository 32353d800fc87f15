import torch.nn.functional as F

from pricing.engine.trainer import BaseTrainer


class PriceTrainer(BaseTrainer):
    def __init__(self, *args, preprocessor, **kwargs):
        super().__init__(*args, **kwargs)
        self.preprocessor = preprocessor

    def compute_loss(self, batch):
        inputs, targets = batch
        return F.huber_loss(self.model(inputs), targets)

    def validation_metrics(self, outputs, targets):
        residual = ((outputs - targets) ** 2).sum()
        spread = ((targets - targets.mean()) ** 2).sum()
        prices = self.preprocessor.prices(targets)
        relative = (self.preprocessor.prices(outputs) - prices).abs() / prices
        return {
            "val_loss": F.huber_loss(outputs, targets).item(),
            "val_mape": relative.mean().item(),
            "val_r2": (1 - residual / spread).item(),
        }
