"""A second, slow allocator written straight from the rules: linked blocks, linear scans, nothing shared with planner.

It checks gpu_plan.planner.memory.allocator.replay on random runs. Rules from pytorch c10/cuda/CUDACachingAllocator.cpp.
"""

from dataclasses import dataclass, field

MIB = 2**20
SPAN = 2**42


@dataclass(eq=False)
class Node:
    """One block of a segment."""

    stream: int
    small: bool
    address: int
    size: int
    in_use: bool = False
    mapped: bool = True
    born: int = 0
    left: "Node | None" = None
    right: "Node | None" = None

    def whole(self) -> bool:
        return self.left is None and self.right is None


@dataclass
class Rules:
    """The settings, in plain fields."""

    expandable: bool = False
    max_split: float = float("inf")
    rounding: int = 20 * MIB
    divisions: int = 0
    threshold: float = 0.0
    large_segment: int = 20 * MIB
    limit: float = float("inf")
    capacity: float = float("inf")


@dataclass
class NaiveAllocator:
    rules: Rules
    nodes: list[Node] = field(default_factory=list)
    reserved: int = 0
    retries: int = 0
    top: int = 0
    large_searches: int = 0

    # -- sizes

    def rounded(self, nbytes: int) -> int:
        steps = self.rules.divisions
        if steps > 1 and nbytes > 512 * steps:
            power = 1
            while power * 2 <= nbytes:
                power *= 2
            size = power
            while size < nbytes:
                size += power // steps
            return size
        size = 512
        while size < nbytes:
            size += 512
        return size

    def segment(self, size: int) -> int:
        if size <= MIB:
            return 2 * MIB
        if size < 10 * MIB:
            return self.rules.large_segment
        return (size + 2 * MIB - 1) // (2 * MIB) * (2 * MIB)

    # -- malloc

    def malloc(self, nbytes: int, stream: int) -> Node | None:
        size = self.rounded(nbytes)
        small = size <= MIB
        node = self.cached(size, stream, small)
        if node is None:
            self.collect()
            node = self.fresh(size, stream, small)
        if node is None and self.release_oversize(size, stream, small):
            node = self.fresh(size, stream, small)
        if node is None:
            self.empty_cache()
            self.retries += 1
            node = self.fresh(size, stream, small)
        if node is None:
            return None
        rest = node.size - size
        fine = small or self.rules.expandable
        if rest >= 512 if fine else size < self.rules.max_split and rest > MIB:
            tail = Node(stream, small, node.address + size, rest, left=node, right=node.right)
            tail.born = self.large_searches
            if node.right:
                node.right.left = tail
            node.right = tail
            node.size = size
            self.nodes.append(tail)
        node.in_use = True
        return node

    def idle(self, stream: int, small: bool) -> list[Node]:
        found = [n for n in self.nodes if n.mapped and not n.in_use and n.stream == stream and n.small == small]
        return sorted(found, key=lambda n: (n.size, n.address))

    def cached(self, size: int, stream: int, small: bool) -> Node | None:
        if not small:
            self.large_searches += 1
        fits = [n for n in self.idle(stream, small) if n.size >= size]
        if not fits:
            return None
        at = 0
        if self.rules.expandable:
            while at + 1 < len(fits) and self.reach(fits[at + 1]) < self.reach(fits[at]):
                at += 1
        node = fits[at]
        if size < self.rules.max_split and node.size >= self.rules.max_split:
            return None
        if size >= self.rules.max_split and node.size >= size + self.rules.rounding:
            return None
        return node

    def reach(self, node: Node) -> int:
        return node.size + (node.right.size if node.right and not node.right.mapped else 0)

    def fresh(self, size: int, stream: int, small: bool) -> Node | None:
        wanted = self.segment(size)
        if self.reserved + wanted > self.rules.limit:
            return None
        if self.rules.expandable:
            return self.grow(size, stream, small)
        if self.reserved + wanted > self.rules.capacity:
            return None
        node = Node(stream, small, self.top, wanted)
        self.top += wanted + 2 * MIB
        self.nodes.append(node)
        self.reserved += wanted
        return node

    # -- expandable segments

    def page(self, small: bool) -> int:
        return 2 * MIB if small else self.rules.large_segment

    def grow(self, size: int, stream: int, small: bool) -> Node | None:
        node = self.find(size, stream, small)
        if not node.mapped and not self.map(node, min(node.size, size)):
            return None
        while node.size < size:
            follow = node.right
            assert follow is not None
            if not self.map(follow, min(size - node.size, follow.size)):
                return None
            node = follow
        return node

    def find(self, size: int, stream: int, small: bool) -> Node:
        unmapped = [n for n in self.nodes if not n.mapped and n.stream == stream and n.small == small]
        for start in sorted(unmapped, key=lambda n: n.address):
            first = start.left if start.left and not start.left.in_use else start
            room, at = 0, first
            while at is not None and not at.in_use and room < size:
                room += at.size
                at = at.right
            if room >= size:
                return first
        page = self.page(small)
        node = Node(stream, small, self.top, SPAN // page * page, mapped=False)
        self.top += 2 * SPAN // page * page
        self.nodes.append(node)
        return node

    def map(self, node: Node, nbytes: int) -> bool:
        page = self.page(node.small)
        nbytes = (nbytes + page - 1) // page * page
        if self.reserved + nbytes > self.rules.capacity:
            return False
        if nbytes < node.size:
            rest = Node(node.stream, node.small, node.address + nbytes, node.size - nbytes, mapped=False)
            self.chain(node, rest, node.right)
            node.size = nbytes
        node.mapped = True
        self.reserved += nbytes
        self.merge(node)
        return True

    def chain(self, left: Node | None, node: Node, right: Node | None) -> None:
        node.left, node.right = left, right
        if left:
            left.right = node
        if right:
            right.left = node
        self.nodes.append(node)

    def unmap(self, node: Node) -> None:
        page = self.page(node.small)
        base = node
        while base.left:
            base = base.left
        offset = node.address - base.address
        first = (offset + page - 1) // page * page
        last = (offset + node.size) // page * page
        if first >= last:
            return
        if first > offset:
            self.chain(node.left, Node(node.stream, node.small, node.address, first - offset), node)
        if last < offset + node.size:
            tail = Node(node.stream, node.small, base.address + last, offset + node.size - last)
            self.chain(node, tail, node.right)
        node.address, node.size, node.mapped = base.address + first, last - first, False
        self.reserved -= node.size
        self.merge(node)

    # -- free

    def free(self, node: Node) -> None:
        node.in_use = False
        self.merge(node)
        node.born = self.large_searches

    def merge(self, node: Node) -> None:
        left, right = node.left, node.right
        if left and not left.in_use and left.mapped == node.mapped:
            node.address, node.size, node.left = left.address, left.size + node.size, left.left
            if left.left:
                left.left.right = node
            self.nodes.remove(left)
        if right and not right.in_use and right.mapped == node.mapped:
            node.size, node.right = node.size + right.size, right.right
            if right.right:
                right.right.left = node
            self.nodes.remove(right)

    # -- giving back

    def release(self, node: Node) -> None:
        assert node.whole()
        assert not node.in_use
        self.reserved -= node.size
        self.nodes.remove(node)

    def empty_cache(self) -> None:
        for node in [n for n in self.nodes if n.mapped and not n.in_use]:
            if self.rules.expandable:
                self.unmap(node)
            elif node.whole():
                self.release(node)

    def release_oversize(self, size: int, stream: int, small: bool) -> bool:
        if self.rules.max_split == float("inf") or self.rules.expandable:
            return False
        wanted = max(size, self.rules.max_split)
        idle = self.idle(stream, small)
        enough = [n for n in idle if n.size >= wanted]
        if enough:
            self.release(enough[0])
            return True
        released = 0
        for node in reversed(idle):
            if released >= wanted or node.size < self.rules.max_split:
                break
            released += node.size
            self.release(node)
        return released >= wanted

    def collect(self) -> None:
        if not self.rules.threshold or self.rules.limit == float("inf"):
            return
        bound = int(self.rules.threshold * self.rules.limit)
        if self.reserved <= bound or self.rules.expandable:
            return
        target, reclaimed, freed = self.reserved - bound, 0, True
        while reclaimed < target and freed:
            old = [n for n in self.nodes if not n.small and not n.in_use and n.whole()]
            if not old:
                return
            average = sum(self.large_searches - n.born for n in old) / len(old)
            freed = False
            for node in old:
                if self.large_searches - node.born >= average:
                    reclaimed += node.size
                    self.release(node)
                    freed = True
