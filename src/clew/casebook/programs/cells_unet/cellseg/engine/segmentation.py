from cellseg.engine.base import Engine


class SegmentationEngine(Engine):
    def __init__(self, *args, threshold=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.threshold = threshold

    def reset_metrics(self):
        self.intersection = self.union = 0

    def update_metrics(self, logits, targets):
        predicted = logits.sigmoid() > self.threshold
        actual = targets > 0.5
        self.intersection += (predicted & actual).sum().item()
        self.union += (predicted | actual).sum().item()

    def metrics(self):
        return {"val_iou": self.intersection / self.union}
