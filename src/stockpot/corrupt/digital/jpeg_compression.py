"""JPEG compression: the real codec on a CPU, a batched DCT codec on other devices."""

from __future__ import annotations

from io import BytesIO
from typing import Literal

from PIL import Image
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.digital.dct import Codec, recompress
from stockpot.corrupt.digital.pillow import map_pictures
from stockpot.corrupt.draws import Draws
from stockpot.types import ImageSize

SMALL = 84
"""Up to this side `auto` takes the codec of the published files: halfway between 32 and 224 px."""


@corruptions.register(
    "jpeg_compression",
    paper="arXiv:1903.12261",
    group="digital",
    benchmark=True,
    whole_batch=True,
    note="auto is libjpeg-9 up to 84 px and libjpeg-turbo from 85",
)
def jpeg_compression(
    pixels: Tensor, constants: Constants, draws: Draws, *, codec: Codec | Literal["auto"] = "auto"
) -> Tensor:
    """Compress and decompress with a low quality.

    Args:
        codec: `libjpeg-turbo` is Pillow's own on a CPU and its tensor likeness elsewhere;
            `libjpeg-9` treats chroma as the codec did that made the published files. `auto` takes
            `libjpeg-9` for pictures of up to 84 px, where the two differ by three grey levels,
            and `libjpeg-turbo` for larger ones, where they hardly differ.
    """
    if codec == "auto":
        codec = codec_for(ImageSize(*pixels.shape[2:]))
    quality = int(constants[0])
    if codec == "libjpeg-turbo" and pixels.is_cpu:
        return through_pillow(pixels, quality)
    return recompress(pixels, quality, codec)


def codec_for(size: ImageSize) -> Codec:
    """What `auto` means at a size."""
    return "libjpeg-9" if min(size) <= SMALL else "libjpeg-turbo"


def through_pillow(pixels: Tensor, quality: int) -> Tensor:
    """Encode and decode with Pillow's codec (libjpeg-turbo), in threads."""

    def there_and_back(picture: Image.Image) -> Image.Image:
        stream = BytesIO()
        picture.save(stream, "JPEG", quality=quality)
        return Image.open(stream, formats=("JPEG",))

    return map_pictures(there_and_back, pixels)
