"""What is packed, unpacked from its beginning as far as somebody reads. Pure."""

import lzma
import zlib
from bisect import bisect_left, bisect_right

PACKED = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 2**23}]
"""A reader holds the dictionary beside what it reads: neighbours in a part are alike, so that a small one does."""
_AHEAD = 2**16
"""Bytes that are given to the reader at a time: of a part with millions of equal ones a second piece is rare."""
_HELD = 2**18
"""Bytes that are held or let go together at most."""
_QUICK = 1
"""Level at which zlib is as fast as the reader: what is left of a trace is a twentieth of it."""


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
        self._starts: list[int] = []
        self._held: list[bytes] = []
        """As it was unpacked, empty once it is read: a book's pieces are as large as all that is made of them."""
        self._deflated: set[int] = set()
        """Those that were passed over: most are never read."""
        self._unread: list[int] = []
        """Bytes of each that nobody has read."""

    def piece(self, first: int, end: int) -> bytes:
        """Bytes `first` to `end`; EOFError where it is cut off or holds fewer, lzma.LZMAError where it is damaged."""
        if first >= end:
            return b""
        if not all(self._held[place] for place in self._places(first, min(end, self._unpacked))):
            self._begin()  # it was read before, and is let go
        while self._unpacked < end:
            self._unpack(min(end - self._unpacked, _HELD), first)
        found = []
        for place in self._places(first, end):
            start, held = self._starts[place], self._held[place]
            whole = zlib.decompress(held) if place in self._deflated else held
            found.append(whole[max(0, first - start) : end - start])
            self._unread[place] -= len(found[-1])
            if self._unread[place] <= 0:
                self._held[place] = b""
        return b"".join(found)

    def _places(self, first: int, end: int) -> range:
        """Where those bytes are held; none where nothing of them is unpacked."""
        return range(bisect_right(self._starts, first) - 1, bisect_left(self._starts, end)) if first < end else range(0)

    def _unpack(self, most: int, wanted: int) -> None:
        """At most so many bytes more; what ends before the first one that is `wanted` is passed over."""
        if self._reader.eof:
            raise EOFError("a part of it holds less than it says")
        given = self._left[:_AHEAD] if self._reader.needs_input else self._left[:0]
        if self._reader.needs_input and not given:
            raise EOFError("a part of it is cut off")
        self._left = self._left[len(given) :]
        more = self._reader.decompress(given, max_length=most)
        if more:
            self._starts.append(self._unpacked)
            self._unread.append(len(more))
            self._unpacked += len(more)
            if self._unpacked <= wanted:
                self._deflated.add(len(self._held))
                more = zlib.compress(more, _QUICK)
            self._held.append(more)
