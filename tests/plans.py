"""A plan to write, read and deploy."""

from coterie.preview.planfile import Plan, PlannedNode, Predicted

EXAMPLE = Plan(
    "three nodes",
    "coterie",
    1,
    2,
    10,
    31_400,
    0.25,
    Predicted(0.001, 0.01, 0.02, 0.032),
    ("a", "c"),
    (PlannedNode("a", 0, 9, 0.001), PlannedNode("b", 0, 8, 0.001), PlannedNode("c", 1, 7, 0.001)),
)
