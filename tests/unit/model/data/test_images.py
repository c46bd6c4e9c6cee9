"""Grey images."""

import lzma
from pathlib import Path

import pytest

from model.data import images
from model.errors import UserError


def test_images_are_read(tmp_path: Path) -> None:
    pixels = bytes(range(256)) * 4
    path = tmp_path / "cifar10_gray_from_jpeg_test.bin.xz"
    path.write_bytes(lzma.compress(b"\x03" + pixels + b"\x09" + pixels[::-1]))
    assert images.read(tmp_path, "test") == [(pixels, 3), (pixels[::-1], 9)]


@pytest.mark.parametrize(
    "content", [b"no archive", lzma.compress(b"\x03" * 1024), lzma.compress(b"\x0a" * 1025), lzma.compress(b"")]
)
def test_error_names_a_damaged_image_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cifar10_gray_from_jpeg_train.bin.xz"
    path.write_bytes(content)
    with pytest.raises(UserError, match="cifar10_gray_from_jpeg_train"):
        images.read(tmp_path, "train")
    with pytest.raises(UserError, match="cifar10_gray_from_jpeg_test"):
        images.read(tmp_path, "test")
