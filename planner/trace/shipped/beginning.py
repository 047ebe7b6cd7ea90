"""What is packed, unpacked from its beginning as far as somebody reads. Pure."""

import lzma

PACKED = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 2**23}]
"""A reader holds the dictionary beside what it reads: neighbours in a part are alike, so that a small one does."""
_AHEAD = 2**16
"""Bytes that are given to the reader at a time: of a part with millions of equal ones a second piece is rare."""


def packed(content: bytes) -> bytes:
    """As `Beginning` reads it."""
    return lzma.compress(content, format=lzma.FORMAT_XZ, filters=PACKED)


class Beginning:
    """Some packed content, of which as much is unpacked as was asked for."""

    def __init__(self, content: bytes) -> None:
        self._left = memoryview(content)
        self._reader = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
        self._found = bytearray()

    def piece(self, first: int, end: int) -> bytes:
        """Bytes `first` to `end`; EOFError where it is cut off or holds fewer, lzma.LZMAError where it is damaged."""
        while len(self._found) < end:
            if self._reader.eof:
                raise EOFError("a part of it holds less than it says")
            given = self._left[:_AHEAD] if self._reader.needs_input else self._left[:0]
            if self._reader.needs_input and not given:
                raise EOFError("a part of it is cut off")
            self._left = self._left[len(given) :]
            self._found += self._reader.decompress(given, max_length=end - len(self._found))
        return bytes(self._found[first:end])
