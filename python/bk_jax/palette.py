"""The palette of every picture and page: Okabe and Ito's, told apart with any colour vision.

>>> sorted(ROUTES)
['fused', 'ghost', 'leaf', 'none', 'sparse', 'store']
"""

BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
SKY, AMBER, YELLOW = "#56b4e9", "#e69f00", "#f0e442"
INK, FAINT, LINE, PALE = "#1c2733", "#5b6673", "#dde2e8", "#9aa5b1"

PRIVATE, PLAIN, OTHER = BLUE, PALE, ORANGE
ROUTES = {
    "ghost": BLUE,
    "fused": GREEN,
    "store": AMBER,
    "sparse": PURPLE,
    "leaf": ORANGE,
    "none": PALE,
}
KINDS = {  # operations of a compiled program, in `bk-hlo`
    "bk call": ORANGE,
    "dot": BLUE,
    "convolution": BLUE,
    "movement": AMBER,
    "collective": PURPLE,
    "custom call": SKY,
    "reduction": GREEN,
    "elementwise": PALE,
    "free": LINE,
}
