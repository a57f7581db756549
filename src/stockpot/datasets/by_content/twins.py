"""Near twins: one picture saved twice, compressed anew, rescaled or slightly retouched.

Two pictures are near twins when their thumbnails (8 x 8 RGB pixels, each a mean around its place)
differ by at most `TOLERANCE` levels of 255 in the root mean square; twins of twins are twins.
Crops, mirror images and other moments of one scene are not found.

Candidates come from a k-d tree over means of 2 x 2 blocks, which never differ by more than the
thumbnails do, so that no pair is missed: n log n for pictures that differ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stockpot.datasets.by_content.image_hashes import SIDE

TOLERANCE = 4.0
_BLOCK = 2
_QUERIES = 512
_PAIRS = 8192


def twin_groups(thumbnails: NDArray[np.uint8]) -> NDArray[np.int64]:
    """A number for each thumbnail; near twins share it."""
    if not len(thumbnails):
        return np.zeros(0, dtype=np.int64)
    from scipy.spatial import cKDTree  # only what is parted by content pays for it

    different, owners = np.unique(thumbnails, axis=0, return_inverse=True)
    points = _block_means(different)
    # Root mean squares become lengths: a length is larger by the root of the number of values.
    reach = TOLERANCE * np.sqrt(points.shape[1])
    tree = cKDTree(points)
    groups = np.arange(len(different))
    for start in range(0, len(different), _QUERIES):
        near = tree.query_ball_point(points[start : start + _QUERIES], reach + 1e-9)
        counts = [len(found) for found in near]
        left = np.repeat(np.arange(start, start + len(near)), counts)
        right = np.concatenate([np.asarray(found, dtype=np.int64) for found in near])
        apart = (left < right) & (groups[left] != groups[right])
        left, right = left[apart], right[apart]
        close = _close(different, left, right)
        groups = _joined(groups, left[close], right[close])
    return groups[owners.reshape(-1)].astype(np.int64)


def _block_means(thumbnails: NDArray[np.uint8]) -> NDArray[np.float64]:
    across = SIDE // _BLOCK
    blocks = thumbnails.reshape(-1, across, _BLOCK, across, _BLOCK, 3).astype(np.float64)
    means: NDArray[np.float64] = blocks.mean(axis=(2, 4)).reshape(len(thumbnails), -1)
    return means


def _close(
    thumbnails: NDArray[np.uint8], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.bool_]:
    found = np.zeros(len(left), dtype=bool)
    for start in range(0, len(left), _PAIRS):
        part = slice(start, start + _PAIRS)
        gaps = thumbnails[left[part]].astype(np.float32) - thumbnails[right[part]]
        found[part] = (gaps**2).mean(axis=1) <= TOLERANCE**2
    return found


def _joined(
    groups: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.int64]:
    if not len(left):
        return groups
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(groups)
    # What was joined before stays so: each picture is tied to its group's number, a picture too.
    rows, columns = np.concatenate([left, np.arange(n)]), np.concatenate([right, groups])
    graph = coo_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(n, n))
    labels = connected_components(graph, directed=False)[1]
    first = np.full(labels.max() + 1, n)
    np.minimum.at(first, labels, np.arange(n))
    joined: NDArray[np.int64] = first[labels].astype(np.int64)
    return joined


def have_twin(
    thumbnails: NDArray[np.uint8], others: NDArray[np.uint8], tolerance: float = TOLERANCE
) -> NDArray[np.bool_]:
    """Which of these thumbnails differ from one of the others by at most the tolerance."""
    near = np.zeros(len(thumbnails), dtype=bool)
    if not len(others):
        return near
    # Levels are whole numbers: products and sums of 192 squares are exact in double precision.
    theirs = others.astype(np.float64)
    lengths = (theirs**2).sum(axis=1)
    most = tolerance**2 * thumbnails.shape[1]
    for start in range(0, len(thumbnails), _QUERIES):
        mine = thumbnails[start : start + _QUERIES].astype(np.float64)
        gaps = (mine**2).sum(axis=1)[:, None] + lengths - 2 * mine @ theirs.T
        near[start : start + _QUERIES] = gaps.min(axis=1) <= most
    return near
