"""What a planner is shown of the data, and what each node uploads for that."""

from dataclasses import dataclass, replace

from coterie.core.arrays import Ints
from coterie.core.streams import Stream, generator
from coterie.divergences.sketch import Privacy, Sketch, centred
from coterie.engine.contract import Gradients
from coterie.grouping import NO_LIMITS, Evidence, Limits
from coterie.simulation.search import Needs


@dataclass(frozen=True, eq=False)
class View:
    """What a planner is shown of the data, what each node uploads for that, and its limits."""

    needs: Needs = "gradients"
    sketch: Sketch | None = None
    privacy: Privacy | None = None
    charged_bytes: int = 0
    limits: Limits = NO_LIMITS

    def of(
        self, bare: Evidence, class_counts: Ints, found: Gradients | None, seed: int, t: int
    ) -> Evidence:
        """Add to evidence of the network what may be seen of the data at step t, and no more."""
        bare = replace(bare, limits=self.limits)
        if self.needs == "labels":
            return replace(bare, label_counts=class_counts)
        if self.needs == "nothing" or found is None:
            return bare
        if found.sketches is None:
            return replace(bare, gram=found.gram, last_layer=found.last_layer)
        sketches = found.sketches
        if self.privacy:
            sketches = self.privacy.noisy(sketches, generator(seed, Stream.NOISE, t))
        return replace(bare, sketch=centred(sketches, bare.p))
