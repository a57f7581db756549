"""JPEG compression: the real codec on a CPU, a batched DCT codec on other devices."""

from __future__ import annotations

from io import BytesIO

from PIL import Image
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.digital.dct import recompress
from stockpot.corrupt.digital.pillow import map_pictures
from stockpot.corrupt.draws import Draws


@corruptions.register(
    "jpeg_compression", paper="arXiv:1903.12261", group="digital", benchmark=True, whole_batch=True
)
def jpeg_compression(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Compress and decompress with a low quality."""
    quality = int(constants[0])
    return through_pillow(pixels, quality) if pixels.is_cpu else recompress(pixels, quality)


def through_pillow(pixels: Tensor, quality: int) -> Tensor:
    """Encode and decode with Pillow's codec (libjpeg-turbo), in threads."""

    def there_and_back(picture: Image.Image) -> list[Image.Image]:
        stream = BytesIO()
        picture.save(stream, "JPEG", quality=quality)
        return list(Image.open(stream, formats=("JPEG",)).split())

    return map_pictures(there_and_back, pixels)
