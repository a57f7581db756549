"""Images besides the training data: to be mixed in, or to be answered as before."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from stockpot.datasets.feed import Feed
from stockpot.datasets.load import load_dataset
from stockpot.models.classifier import Classifier


def other_images(source: str, model: Classifier) -> Feed:
    """The training images of a dataset or folder, for a model; labels play no part."""
    data = load_dataset(source, split="train")
    return Feed(data.images, model.preprocess.fit, model.device)


def taken(feed: Feed, rows: Tensor) -> Tensor:
    """These rows in [0, 1]."""
    return next(iter(feed.batches(len(rows), rows))).float() / 255


def of_size(images: Tensor, like: Tensor) -> Tensor:
    """Images brought to the size of others."""
    size = like.shape[-2:]
    if images.shape[-2:] == size:
        return images
    return F.interpolate(images, size=size, mode="bilinear", antialias=True).clamp(0, 1)
