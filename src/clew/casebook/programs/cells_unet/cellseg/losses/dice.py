import torch
import torch.nn as nn


class DiceLoss(nn.Module):
    """One minus the soft Dice overlap, averaged over the images of the batch. Takes logits."""

    def __init__(self, smooth=1.0):
        super().__init__()
        self.smooth = smooth

    def forward(self, logits, masks):
        probabilities = torch.sigmoid(logits).flatten(1)
        masks = masks.flatten(1)
        overlap = (probabilities * masks).sum(1)
        total = probabilities.sum(1) + masks.sum(1)
        return 1 - ((2 * overlap + self.smooth) / (total + self.smooth)).mean()


class SegmentationLoss(nn.Module):
    def __init__(self, bce=1.0, dice=1.0):
        super().__init__()
        self.bce_weight, self.dice_weight = bce, dice
        self.bce, self.dice = nn.BCEWithLogitsLoss(), DiceLoss()

    def forward(self, logits, masks):
        return self.bce_weight * self.bce(logits, masks) + self.dice_weight * self.dice(logits, masks)
