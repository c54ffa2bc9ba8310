"""An author's algorithm that uses every function but those that Flower does not offer."""

from torch import Tensor

from coterie import Algorithm, Arrays, At, Kept, Mean, Pull, Update


def everything(pace: float = 0.5) -> Algorithm:
    """Nodes keep a vector and a number, groups a vector and a number, the server both too."""

    def begin(n: int, w: Tensor) -> Kept:
        node = {"way": w.new_zeros(n, len(w)), "turns": w.new_full((n,), 1 / n)}
        group = {"way": w.clone(), "means": w.new_zeros(())}
        return Kept(node, group, {"way": w.clone(), "means": w.new_ones(())})

    def pull(at: At) -> Pull:
        towards = at.given.lerp(at.group["way"], 0.25) + 0.1 * at.node["way"]
        return Pull(at.node["turns"] * at.node["way"], towards, 0.05)

    def correct(g: Tensor, w: Tensor, at: At) -> Tensor:
        near = at.lr * at.steps / at.rates * (w - at.server["way"]) / at.server["means"]
        return g + 0.01 * near + 0.001 * at.group["means"] * at.node["way"]

    def renew(w: Tensor, at: At) -> Arrays:
        way = pace * at.node["way"] + (w - at.given) / at.mean_steps
        return {"way": way, "turns": at.node["turns"] + 0.1}

    def send(w: Tensor, at: At) -> Tensor:
        return w + 0.01 * at.node["way"] * at.mean_steps / at.steps

    def group(mean: Mean) -> Arrays:
        return {
            "way": mean.by_group(mean.node["way"]) + 0.5 * mean.group["way"],
            "means": mean.group["means"] + mean.by_group(mean.node["turns"]),
        }

    def server(w: Tensor, mean: Mean) -> tuple[Tensor, Arrays]:
        way = mean.over_all(mean.node["way"])
        kept = {"way": w + way, "means": mean.server["means"] + mean.share}
        return mean.given + 0.9 * (w - mean.given) + 0.01 * way, kept

    update = Update(begin, pull, correct, renew, send, group, server, momentum=False)
    return Algorithm("Everything", update)
