"""Adversarial images on the disk: `images.safetensors` and a manifest that says what they are.

| tensor | what it holds |
|---|---|
| `original` | the images as they were, uint8 where they have 256 levels, else float32 |
| `label` | their classes, in the numbering of the data |
| `adversarial.0`, ... | float32 pixels in [0, 1], one tensor for each threat of the manifest |

Whoever reads them back is told of anything that does not fit: another content than the manifest's
sha256, pixels that are none, and images that lie outside the ball they claim.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from stockpot.attack.projection import norm_of
from stockpot.attack.threat import Threat, threat
from stockpot.checkpoints.folder import staged_folder
from stockpot.errors import BadDataError, BadParameterError, UserError
from stockpot.types import Reference

FORMAT = "stockpot-adversarial-images"
VERSION = 1
MANIFEST = "manifest.json"
_FILE = "images.safetensors"
_ROUNDING = 1e-4
"""A ball's radius may be exceeded by this share: sums over many float32 pixels are rounded."""

ImagesRef = Annotated[str, Reference("images")]
"""A folder of saved adversarial images."""


@dataclass(frozen=True)
class SavedImages:
    """Adversarial images with what they were made from."""

    images: Mapping[Threat, Tensor]
    """Float32 pixels in [0, 1], N x C x H x W, for each threat."""
    originals: Tensor
    """The images as they were, float32 pixels."""
    labels: Tensor
    manifest: Mapping[str, Any]
    """What was said of them: the model and its fingerprint, the data, seed, convention, ..."""

    def __len__(self) -> int:
        return len(self.labels)


def save_images(
    folder: str | Path,
    images: Mapping[Threat, Tensor],
    originals: Tensor,
    labels: Tensor,
    about: Mapping[str, Any],
) -> Path:
    """Write adversarial images; the folder appears whole or not at all.

    Args:
        folder: where to; it must not exist, or be empty.
        images: for each threat the worst images found, pixels in [0, 1].
        originals: the images they were found around, as pixels in [0, 1] or uint8.
        labels: class numbers.
        about: what else the manifest says: model, fingerprint, data, seed, ...
    """
    from safetensors.torch import save_file

    before = originals if originals.dtype == torch.uint8 else _levels(originals.float().cpu())
    found = {each: pixels.float().cpu() for each, pixels in images.items()}
    for each, pixels in found.items():
        _check(each, pixels, _pixels(before.cpu()), "images")
    names = {each: f"adversarial.{place}" for place, each in enumerate(found)}
    tensors = {"original": before.cpu().contiguous(), "label": labels.long().cpu().contiguous()}
    # Copies: the format takes no two tensors that share memory, as an unchanged image's would.
    tensors |= {names[each]: pixels.contiguous().clone() for each, pixels in found.items()}
    target = Path(folder)
    needs = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    with staged_folder(target, needs=needs) as work:
        save_file(tensors, work / _FILE, metadata={"format": "pt"})
        (work / _FILE).chmod(0o644)
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "file": _FILE,
            "sha256": _digest(work / _FILE),
            "images": len(labels),
            "threats": [
                {"norm": each.norm, "eps": each.eps, "tensor": name} for each, name in names.items()
            ],
            **about,
        }
        text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        (work / MANIFEST).write_text(text, encoding="utf-8")
    return target


def load_images(folder: str | Path) -> SavedImages:
    """Read adversarial images back and check that they are what they claim to be."""
    from safetensors.torch import load_file

    place = Path(folder)
    manifest = read_manifest(place)
    path = place / str(manifest["file"])
    if not path.is_file() or _digest(path) != manifest["sha256"]:
        raise BadDataError(
            f"{path} is not the file that its manifest was written for.",
            hint="Save the images again.",
        )
    try:
        tensors = load_file(path)
        originals, labels = _pixels(tensors["original"]), tensors["label"]
        images = {
            threat(each["norm"], str(each["eps"])): tensors[each["tensor"]]
            for each in manifest["threats"]
        }
    except UserError:
        raise
    except Exception as problem:  # the reader and a manifest with other keys raise many kinds
        raise BadDataError(f"{place} cannot be read: {problem!r}.") from problem
    for each, pixels in images.items():
        _check(each, pixels, originals, str(place))
    return SavedImages(images, originals, labels, manifest)


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """What a folder says of its images, without reading them."""
    path = Path(folder) / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        manifest = {}
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BadDataError(
            f"{folder} holds no saved adversarial images: expected {MANIFEST} of {FORMAT}.",
            hint="`stockpot attack MODEL --data D --save FOLDER` writes them.",
        )
    if manifest.get("version") != VERSION or not {"file", "sha256", "threats"} <= manifest.keys():
        raise BadDataError(
            f"{path}: expected version {VERSION} with file, sha256 and threats, got version "
            f"{manifest.get('version')}."
        )
    return manifest


def _check(ball: Threat, images: Tensor, originals: Tensor, where: str) -> None:
    if images.shape != originals.shape:
        raise BadDataError(
            f"{where}: {ball} has shape {tuple(images.shape)}, its originals "
            f"{tuple(originals.shape)}."
        )
    if not bool(((images >= 0) & (images <= 1)).all()):  # NaN is neither
        raise BadDataError(f"{where}: {ball} holds values that are no pixels in [0, 1].")
    if not len(images):
        return
    distance = norm_of(ball.norm, images.double() - originals.double())
    far = int(distance.argmax())
    if float(distance[far]) > ball.radius * (1 + _ROUNDING) + 1e-7:
        count = int((distance > ball.radius * (1 + _ROUNDING) + 1e-7).sum())
        raise BadDataError(
            f"{where}: {count} of {len(images)} images lie outside the ball {ball}: image {far} is "
            f"{float(distance[far])!r} from its original, {ball.radius!r} are allowed."
        )


def _levels(pixels: Tensor) -> Tensor:
    """As uint8 where nothing is lost by it."""
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise BadParameterError("expected originals as pixels in [0, 1].")
    levels = (pixels * 255).round().to(torch.uint8)
    return levels if torch.equal(_pixels(levels), pixels) else pixels


def _pixels(stored: Tensor) -> Tensor:
    return stored if stored.is_floating_point() else stored.float() / 255


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
