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
    """Some packed content, of which as much is unpacked as was asked for, and held until it is read."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._begin()

    def _begin(self) -> None:
        self._left = memoryview(self._content)
        self._reader = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
        self._unpacked = 0
        self._held: list[tuple[int, bytearray]] = []
        """What nobody has read yet, and where each stretch of it begins; a book's pieces together are larger than all
        that is made of them."""

    def piece(self, first: int, end: int) -> bytes:
        """Bytes `first` to `end`; EOFError where it is cut off or holds fewer, lzma.LZMAError where it is damaged."""
        if first < self._unpacked and self._place(first, min(end, self._unpacked)) is None:
            self._begin()  # it was read before: nobody keeps what two read
        while self._unpacked < end:
            self._unpack(end - self._unpacked)
        place = self._place(first, end)
        assert place is not None  # all up to `end` is unpacked, and none of it read
        begins, stretch = self._held[place]
        found = bytes(stretch[first - begins : end - begins])
        rest = [(begins, stretch[: first - begins]), (end, stretch[end - begins :])]
        self._held[place : place + 1] = [one for one in rest if one[1]]
        return found

    def _place(self, first: int, end: int) -> int | None:
        """Which stretch holds all of these bytes."""
        for place, (begins, stretch) in enumerate(self._held):
            if begins <= first and end <= begins + len(stretch):
                return place
        return None

    def _unpack(self, most: int) -> None:
        """At most so many bytes more."""
        if self._reader.eof:
            raise EOFError("a part of it holds less than it says")
        given = self._left[:_AHEAD] if self._reader.needs_input else self._left[:0]
        if self._reader.needs_input and not given:
            raise EOFError("a part of it is cut off")
        self._left = self._left[len(given) :]
        more = self._reader.decompress(given, max_length=most)
        if not self._held or self._held[-1][0] + len(self._held[-1][1]) != self._unpacked:
            self._held.append((self._unpacked, bytearray()))
        self._held[-1][1].extend(more)
        self._unpacked += len(more)
