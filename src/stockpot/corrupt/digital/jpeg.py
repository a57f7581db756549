"""JPEG compression: the real codec on a CPU, a batched DCT codec on other devices."""

from __future__ import annotations

from io import BytesIO

from PIL import Image
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.digital.dct import Codec, recompress
from stockpot.corrupt.digital.pillow import map_pictures
from stockpot.corrupt.draws import Draws


@corruptions.register(
    "jpeg_compression", paper="arXiv:1903.12261", group="digital", benchmark=True, whole_batch=True
)
def jpeg_compression(
    pixels: Tensor, constants: Constants, draws: Draws, *, codec: Codec = "libjpeg-turbo"
) -> Tensor:
    """Compress and decompress with a low quality.

    Args:
        codec: `libjpeg-turbo` is Pillow's own on a CPU and its tensor likeness elsewhere;
            `libjpeg-9` treats chroma as the codec did that made the published files.
    """
    quality = int(constants[0])
    if codec == "libjpeg-turbo" and pixels.is_cpu:
        return through_pillow(pixels, quality)
    return recompress(pixels, quality, codec)


def through_pillow(pixels: Tensor, quality: int) -> Tensor:
    """Encode and decode with Pillow's codec (libjpeg-turbo), in threads."""

    def there_and_back(picture: Image.Image) -> Image.Image:
        stream = BytesIO()
        picture.save(stream, "JPEG", quality=quality)
        return Image.open(stream, formats=("JPEG",))

    return map_pictures(there_and_back, pixels)
