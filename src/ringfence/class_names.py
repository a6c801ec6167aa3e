"""Names of the classes of public data sets; a page about them needs no torch, which comes with ``ringfence.data``."""

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
DIGITS = tuple("0123456789")
MOTIONS = ("left", "right", "up", "down", "rotating", "growing", "shrinking", "bouncing")
