"""The processes behind walls, as they are seen from in front of them.

warden      the process in front: waits for what stands behind, ends with it, and ends all that is left
tree        all that a process has started, and what it takes
watch       limits on that, of progress and of size
"""
